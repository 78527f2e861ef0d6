"""Hosts of a real network: namespaces on a bridge with limited links.

A test can cut the links.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cable
from distributed import Client

__all__ = ["Hosts", "enter", "pretended_hosts", "why_no_hosts"]

# Bytes that a link lets through at once, and how long one may queue.
BURST = "256kb"
QUEUE = "100ms"

BOOT_ID = b"/proc/sys/kernel/random/boot_id"
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def why_no_hosts() -> str | None:
    """Return why this process cannot make hosts; None if it can."""
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 are not installed"
    name = f"dgpuhash-{secrets.token_hex(4)}"
    trial = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if trial.returncode != 0:
        return f"network namespaces may not be made here ({trial.stderr.strip()})"
    _run("ip", "netns", "delete", name)
    return None


class Hosts:
    """Network of `count` hosts on one switch, with this process on it.

    Parameters
    ----------
    count : int
    bandwidth : str
        Bandwidth of each link, in each direction, as ``tc`` spells it.
    delay_ms : float
        Delay of each link, in each direction. If links cannot be delayed, there is a warning.

    Attributes
    ----------
    undelayed : str
        Why links have no delay; empty if they have.
    """

    undelayed = ""

    def __init__(self, count: int, bandwidth: str, delay_ms: float) -> None:
        self._id = secrets.token_hex(3)
        self._switch = f"dg{self._id}"
        self._network = _free_network()
        self._processes: list[subprocess.Popen] = []
        self._names: list[str] = []
        try:
            _run("ip", "link", "add", self._switch, "type", "bridge")
            _run("ip", "address", "add", f"{self._network}.254/24", "dev", self._switch)
            _run("ip", "link", "set", self._switch, "up")
            for number in range(1, count + 1):
                self.undelayed = self._add(number, bandwidth, delay_ms)
        except BaseException:
            self.close()
            raise
        if self.undelayed:
            warnings.warn(
                f"links have {bandwidth} but no delay of {delay_ms} ms: {self.undelayed}",
                stacklevel=2,
            )

    def address(self, host: int) -> str:
        """Return the IP address of a host; hosts are numbered from 1."""
        return f"{self._network}.{host}"

    def start(
        self, host: int, command: Sequence[str | Path], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen:
        """Start a process on a host; it ends with the hosts."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self._name(host), *command],
                env=os.environ | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
            )
        self._processes.append(process)
        return process

    def network(self, host: int) -> Path:
        """Return the namespaces that a process on a host enters; see `enter`."""
        return Path("/run/netns", self._name(host))

    def cut(self, host: int) -> None:
        """Cut the link of a host: packets are dropped without notice."""
        _run("ip", "link", "set", self._port(host), "down")

    def mend(self, host: int) -> None:
        """Undo `cut`."""
        _run("ip", "link", "set", self._port(host), "up")

    def close(self) -> None:
        """End the processes and remove the hosts."""
        for name in self._names:
            running = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in running.stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        for process in self._processes:
            process.wait(timeout=60)
        for number, name in enumerate(self._names, start=1):
            # A cable's end goes with its process.
            subprocess.run(["ip", "link", "delete", self._port(number)], capture_output=True)
            subprocess.run(["ip", "netns", "delete", name], check=False)
        subprocess.run(["ip", "link", "delete", self._switch], check=False)

    def _name(self, host: int) -> str:
        return f"{self._switch}-{host}"

    def _port(self, host: int) -> str:
        """Return the name of the switch's end of a host's cable."""
        return f"{self._switch}p{host}"

    def _add(self, number: int, bandwidth: str, delay_ms: float) -> str:
        """Make a host; return why its link cannot be delayed, if so."""
        name, port = self._name(number), self._port(number)
        inside = ("ip", "netns", "exec", name)
        _run("ip", "netns", "add", name)
        self._names.append(name)
        refusal = self._lay(name, port, delay_ms)
        if refusal:
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        limit = ("tbf", "rate", bandwidth, "burst", BURST, "latency", QUEUE)
        for where, device in (((), port), (inside, "eth0")):
            _run(*where, "ip", "link", "set", device, "mtu", str(cable.MTU))
            _run(*where, "tc", "qdisc", "add", "dev", device, "root", *limit)
        _run("ip", "link", "set", port, "master", self._switch, "up")
        _run(*inside, "ip", "link", "set", "lo", "up")
        _run(*inside, "ip", "address", "add", f"{self.address(number)}/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        return refusal

    def _lay(self, name: str, port: str, delay_ms: float) -> str:
        """Lay a cable from the switch to a host; return why it has no delay."""
        seconds = str(delay_ms / 1000)
        try:
            end = cable.tap(port)
        except OSError as error:
            return f"no network devices of processes ({error})"
        try:
            carrier = subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, cable.__file__, str(end), seconds],
                stdout=subprocess.PIPE,
                pass_fds=[end],
            )
        finally:
            os.close(end)
        self._processes.append(carrier)
        assert carrier.stdout is not None
        carrier.stdout.readline()
        return ""


def enter(network: Path) -> None:
    """Move this process to a host; it must not have threads yet."""
    library = ctypes.CDLL(None, use_errno=True)

    def call(function: str, *arguments: Any) -> None:
        if getattr(library, function)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{function}: {os.strerror(number)}", str(network))

    with network.open() as namespace:
        call("setns", namespace.fileno(), CLONE_NEWNET)
    call("unshare", CLONE_NEWNS)
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    with tempfile.NamedTemporaryFile() as boot:
        boot.write(network.name.encode())
        boot.flush()
        call("mount", boot.name.encode(), BOOT_ID, None, MS_BIND, None)


@contextmanager
def pretended_hosts(client: Client, hosts: Mapping[str, int]) -> Iterator[None]:
    """Let each worker, a process, say that it is on a host of this number."""
    with tempfile.TemporaryDirectory() as folder:
        client.run(_pretend, folder, dict(hosts))
        try:
            yield
        finally:
            client.run(_pretend, None, {})


def _pretend(folder: str | None, hosts: dict[str, int], dask_worker: Any) -> None:
    from dgpuhash.distributed.collective import group

    if folder is None:
        group.BOOT = Path(os.fsdecode(BOOT_ID))
        return
    number = str(hosts[dask_worker.address])
    group.BOOT = Path(folder, number)
    group.BOOT.write_text(number)


def _free_network() -> str:
    """Return the first three numbers of an unused private network."""
    taken = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    while True:
        network = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        if f"{network}." not in taken:
            return network


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
