"""Draw the dashboard page: shards by rows and bytes, and bulk work in progress.

It needs Bokeh; `server.add_page` imports it where the scheduler has a dashboard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import (
    AdaptiveTicker,
    BasicTicker,
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    DataTable,
    Div,
    HoverTool,
    HTMLTemplateFormatter,
    NumberFormatter,
    Span,
    StringFormatter,
    TableColumn,
)
from bokeh.plotting import figure
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from dgpuhash.distributed.dashboard.cluster_figures import (
    ClusterFigures,
    Holder,
    WorkPhase,
    figures_of,
)
from dgpuhash.tables.stats import format_bytes

# Milliseconds between two looks at the figures, which come once a second.
LOOK = 500
# Shards with more rows than so many times the average are shown in another colour.
MOST_SKEW = 1.3
ROW_HEIGHT = 28
MOST_ROWS = 10
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#555555"

_IDLE = "None: no build, change or merge is running."
_BAR = f"""
<div style="display:flex; align-items:center; gap:8px">
  <div style="flex:1; height:10px; border-radius:5px; background:#E3E8EC; overflow:hidden">
    <div style="height:100%; width:<%= 100 * SHARE %>%; background:{BLUE}"></div>
  </div>
  <span style="min-width:6ch; text-align:right"><%= TEXT %></span>
</div>"""
_RIGHT = """<div style="text-align:right"><%= size %></div>"""
_SKEW = f"""
<span style="color:<%= value > {MOST_SKEW} ? '{VERMILION}' : 'inherit' %>">
<%= value.toFixed(2) %></span>"""
_SHARDS = f"""
<span style="color:<%= told < expected ? '{VERMILION}' : 'inherit' %>"><%= value %></span>"""
_STYLE = """
:host { font-family: Helvetica, Arial, sans-serif; }
.bk-data-table, .slick-header-column { font-size: 13px; }
.slick-header-columns { background: #F0F2F4; font-weight: bold; }
.slick-cell { line-height: 22px; }
"""


# A tick as a short number: 20 M, 1.5 GiB.
_TICKS = """
let rest = tick, unit = 0
const units = base == 1000 ? ["", "k", "M", "G", "T"] : ["B", "KiB", "MiB", "GiB", "TiB"]
while (rest >= base && unit < units.length - 1) { rest /= base; unit += 1 }
return `${+rest.toFixed(1)} ${units[unit]}`"""


def _bar(share: str, text: str) -> str:
    """Return a table cell template: a bar for a column's share, beside another column's text."""
    return _BAR.replace("SHARE", share).replace("TEXT", text)


class ShardsPage(DashboardComponent):
    """Contents of the page for one viewer.

    Sources, by their names: ``holders`` has a row for each index and table, ``shards`` one for each
    shard of the one that is selected, or of the largest, and ``phases`` one for each bulk work that
    is under way.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._figures: ClusterFigures = figures_of(scheduler)
        self._selected: str | None = None
        self._holders = ColumnDataSource(_holder_columns([]), name="holders")
        self._shards = ColumnDataSource(_shard_columns(None), name="shards")
        self._phases = ColumnDataSource(_phase_columns([]), name="phases")
        self._holders.selected.on_change("indices", self._select)
        self._summary = Div(name="summary", sizing_mode="stretch_width")
        self._table = _table(self._holders, _holder_table())
        self._working = _table(self._phases, _phase_table())
        self._idle = Div(text=_IDLE, name="idle", styles={"color": GREY, "font-size": "13px"})
        self._average = Span(dimension="width", line_color=GREY, line_dash="dashed", line_width=2)
        rows = _bars(self._shards, "rows", 1000)
        rows.add_layout(self._average)
        self._title = Div(name="title", sizing_mode="stretch_width")
        nbytes = _bars(self._shards, "nbytes", 1024)
        self.root = column(
            self._summary,
            _heading("Indexes and tables"),
            self._table,
            self._title,
            row(rows, nbytes, sizing_mode="stretch_width"),
            _heading("Bulk work under way"),
            self._idle,
            self._working,
            sizing_mode="stretch_width",
            styles={"max-width": "1400px", "margin": "0 auto"},
        )

    def update(self, messages: Any = None) -> None:
        """Request new figures if due, and show the latest ones."""
        self._figures.ask(self._scheduler)
        holders = self._figures.holders(self._scheduler)
        phases = self._figures.phases(self._scheduler)
        _put(self._holders, _holder_columns(holders))
        _put(self._phases, _phase_columns(phases))
        shown = self._shards_to_show(holders)
        _put(self._shards, _shard_columns(shown))
        if shown is not None and shown.shards:
            rows = [shard.rows for shard in shown.shards]
            self._average.location = sum(rows) / len(rows)
        self._summary.text = _summary(holders, len(self._scheduler.workers))
        self._title.text = _title(shown)
        self._idle.visible, self._working.visible = not phases, bool(phases)
        for table, count in ((self._table, len(holders)), (self._working, len(phases))):
            table.height = ROW_HEIGHT * (min(max(count, 1), MOST_ROWS) + 1) + 4

    def _shards_to_show(self, holders: Sequence[Holder]) -> Holder | None:
        """Return the index or table to show: the selected one, else the largest."""
        selected = [each for each in holders if each.uid == self._selected]
        return selected[0] if selected else max(holders, key=lambda each: each.rows, default=None)

    def _select(self, attr: str, old: Any, new: Sequence[int]) -> None:
        uids = self._holders.data["uid"]
        self._selected = uids[new[0]] if new and new[0] < len(uids) else None
        self.update()


def page_doc(scheduler: Any, extra: Mapping[str, Any], doc: Any) -> None:
    """Fill a Bokeh document with the page; Dask's server calls it for each viewer."""
    page = ShardsPage(scheduler)
    page.update()
    add_periodic_callback(doc, page, LOOK)
    doc.title = "Dask: dgpuhash"
    doc.add_root(page.root)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


def _put(source: ColumnDataSource, data: dict[str, list[Any]]) -> None:
    """Replace the data of a source, if it differs: only changes are sent."""
    if dict(source.data) != data:
        source.data = data


def _holder_columns(holders: Sequence[Holder]) -> dict[str, list[Any]]:
    return {
        "uid": [each.uid for each in holders],
        "name": [each.name for each in holders],
        "kind": [each.kind for each in holders],
        "stored": [each.stored for each in holders],
        "placement": [each.placement for each in holders],
        "rows": [each.rows for each in holders],
        "nbytes": [each.nbytes for each in holders],
        "size": [_size(each.nbytes) for each in holders],
        "load": [each.load or 0.0 for each in holders],
        "load_text": ["" if each.load is None else f"{each.load:.0%}" for each in holders],
        "skew": [each.skew for each in holders],
        "epoch": [each.epoch for each in holders],
        "told": [len(each.shards) for each in holders],
        "expected": [each.expected for each in holders],
        "shards": [f"{len(each.shards)} of {each.expected}" for each in holders],
    }


def _size(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else format_bytes(nbytes)


def _shard_columns(holder: Holder | None) -> dict[str, list[Any]]:
    shards = () if holder is None else holder.shards
    average = sum(shard.rows for shard in shards) / max(1, len(shards))
    return {
        "number": list(range(len(shards))),
        "worker": [shard.worker for shard in shards],
        "rows": [shard.rows for shard in shards],
        "nbytes": [shard.nbytes for shard in shards],
        "size": [_size(shard.nbytes) for shard in shards],
        "colour": [VERMILION if shard.rows > MOST_SKEW * average else BLUE for shard in shards],
    }


def _phase_columns(phases: Sequence[WorkPhase]) -> dict[str, list[Any]]:
    return {
        "name": [each.name for each in phases],
        "verb": [each.verb for each in phases],
        "step": [each.step for each in phases],
        "done": [each.done for each in phases],
        "total": [each.total for each in phases],
        "share": [each.done / each.total if each.total else 0.0 for each in phases],
        "text": [f"{each.done / each.total:.0%}" if each.total else "…" for each in phases],
        "amount": [_amount(each) for each in phases],
        "seconds": [round(each.seconds, 1) for each in phases],
        "workers": [each.workers for each in phases],
    }


def _amount(phase: WorkPhase) -> str:
    if phase.total:
        return f"{phase.done:,} of {phase.total:,} {phase.unit}"
    return f"{phase.done:,} {phase.unit}" if phase.done else ""


def _table(source: ColumnDataSource, columns: Sequence[TableColumn]) -> DataTable:
    made = DataTable(
        source=source,
        columns=list(columns),
        index_position=None,
        row_height=ROW_HEIGHT,
        sizing_mode="stretch_width",
        stylesheets=[_STYLE],
    )
    # Bokeh 3.9 draws cells anew only when the number of rows changes.
    again = CustomJS(args={"view": made.view}, code="view.change.emit()")
    source.js_on_change("data", again)
    return made


def _column(name: str, title: str, width: int, formatter: Any = None) -> TableColumn:
    return TableColumn(
        field=name, title=title, width=width, formatter=formatter or StringFormatter()
    )


# Models belong to one document: each reader has tables, columns and formatters of its own.
def _number(spelling: str = "0,0") -> NumberFormatter:
    return NumberFormatter(format=spelling, text_align="right")


def _html(template: str) -> HTMLTemplateFormatter:
    return HTMLTemplateFormatter(template=template)


def _holder_table() -> list[TableColumn]:
    return [
        _column("name", "Name", 160, StringFormatter(font_style="bold")),
        _column("kind", "Kind", 90),
        _column("stored", "Keys in", 130),
        _column("placement", "Placement", 90),
        _column("rows", "Rows", 110, _number()),
        _column("nbytes", "Bytes", 90, _html(_RIGHT)),
        _column("load", "Load", 140, _html(_bar("load", "load_text"))),
        _column("skew", "Skew", 60, _html(_SKEW)),
        _column("shards", "Shards", 70, _html(_SHARDS)),
        _column("epoch", "Epoch", 60, _number()),
    ]


def _phase_table() -> list[TableColumn]:
    return [
        _column("name", "Name", 160, StringFormatter(font_style="bold")),
        _column("verb", "Verb", 70),
        _column("step", "Step", 160),
        _column("share", "Progress", 200, _html(_bar("share", "text"))),
        _column("amount", "Done", 190),
        _column("seconds", "Seconds", 70, _number("0.0")),
        _column("workers", "Workers", 70, _number()),
    ]


def _bars(source: ColumnDataSource, field: str, base: int) -> Any:
    """Return a figure with a bar for each shard; units go by powers of `base`."""
    made = figure(
        height=240,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        x_axis_label="shard",
        y_axis_label={"rows": "rows", "nbytes": "bytes"}[field],
        name=f"bars of {field}",
    )
    made.vbar(x="number", top=field, width=0.8, color="colour", source=source)
    made.add_tools(
        HoverTool(
            tooltips=[
                ("worker", "@worker"),
                ("rows", "@rows{0,0}"),
                ("bytes", "@size"),
            ]
        )
    )
    made.y_range.start = 0
    made.xgrid.visible = False
    made.xaxis.ticker = BasicTicker(min_interval=1)
    made.xaxis.minor_tick_line_color = None
    made.yaxis.minor_tick_line_color = None
    mantissas = [1, 2, 5] if base == 1000 else [1, 2, 4, 16, 64, 256]
    made.yaxis.ticker = AdaptiveTicker(base=base if base == 1024 else 10, mantissas=mantissas)
    made.yaxis.formatter = CustomJSTickFormatter(args={"base": base}, code=_TICKS)
    return made


def _heading(text: str) -> Div:
    return Div(text=f"<h3 style='margin:10px 0 2px; color:#222'>{text}</h3>")


def _summary(holders: Sequence[Holder], workers: int) -> str:
    known = [each.nbytes for each in holders if each.nbytes is not None]
    lost = sum(each.expected - len(each.shards) for each in holders)
    tiles = [
        (f"{len(holders):,}", "indexes and tables", "#222"),
        (f"{sum(each.rows for each in holders):,}", "rows", "#222"),
        (format_bytes(sum(known)), "in memory", "#222"),
        (f"{workers:,}", "workers", "#222"),
        (f"{lost:,}", "shards missing", VERMILION if lost else "#222"),
    ]
    return "<div style='display:flex; gap:44px; padding:10px 0 0'>" + "".join(
        f"<div><div style='font-size:24px; color:{colour}'>{figure_}</div>"
        f"<div style='font-size:12px; color:{GREY}'>{what}</div></div>"
        for figure_, what, colour in tiles
    ) + "</div>"  # fmt: skip


def _title(holder: Holder | None) -> str:
    if holder is None:
        return ""
    return (
        f"<h3 style='margin:10px 0 2px; color:#222'>Shards of {escape(holder.name)}</h3>"
        f"<span style='font-size:12px; color:{GREY}'>The largest has {holder.skew:.2f} times the "
        "average, the dashed line. A row above shows its shards when it is clicked.</span>"
    )
