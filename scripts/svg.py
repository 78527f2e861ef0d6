"""Compact SVG: the same picture as Matplotlib's, in fewer lines and bytes."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_GEOMETRY = ("d", "x", "y", "transform", "width", "height")
_LINE = 100


def compact(text: str) -> str:
    """Return an SVG with coordinates of two digits and without groups that only carry a name.

    Parameters
    ----------
    text : str
        As Matplotlib writes it: its descriptions, styles and clip paths stay.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(text)
    wanted = set(re.findall(r"#([\w.]+)", text))
    for element in root.iter():
        for name in _GEOMETRY:
            if name in element.attrib:
                rounded = _LONG_NUMBER.sub(_rounded, element.attrib[name])
                element.set(name, " ".join(rounded.split()))
        if element.attrib.get("id") not in wanted:
            element.attrib.pop("id", None)
    _unwrap(root)
    _name_styles(root)
    return _filled(ElementTree.tostring(root, encoding="unicode"))


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _name_styles(root: ElementTree.Element) -> None:
    """Write each style that several elements have once, as a class of its own."""
    styles = Counter(one.attrib["style"] for one in root.iter() if "style" in one.attrib)
    repeated = [style for style, count in styles.items() if count > 1]
    classes = {style: f"s{number}" for number, style in enumerate(repeated)}
    for one in root.iter():
        if (style := one.attrib.get("style")) in classes:
            del one.attrib["style"]
            one.set("class", classes[style])
    rules = (f".{name}{{{style}}}" for style, name in classes.items())
    sheet = root.find(f"{{{SVG}}}defs/{{{SVG}}}style")
    assert sheet is not None
    sheet.text = "\n".join([sheet.text or "", *rules])


def _unwrap(parent: ElementTree.Element) -> None:
    """Replace groups without attributes by what they have, and drop empty ones."""
    children = []
    for child in parent:
        _unwrap(child)
        bare = child.tag == f"{{{SVG}}}g" and not child.attrib
        children += list(child) if bare else [child]
    parent[:] = children


def _filled(text: str) -> str:
    """Return a document with its elements in lines of about a hundred letters."""
    lines, line = ['<?xml version="1.0" encoding="utf-8"?>'], ""
    pieces = re.sub(r">\s+<", "><", text).replace(" />", "/>").replace("><", ">\n<")
    for piece in pieces.split("\n"):
        if line and len(line) + len(piece) > _LINE:
            lines.append(line)
            line = ""
        line += piece
    return "\n".join([*lines, line, ""])
