"""Network cable with delay: a process between two tap devices.

It is for kernels without netem. Run by `Hosts` in the namespace of a host: ``python cable.py FD
SECONDS``, where FD is the switch's end. It makes the host's end, eth0, and says so.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

__all__ = ["MTU", "tap"]

# Large frames, since each costs as much as a small one.
MTU = 9000
FRAME_NBYTES = MTU + 64

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


def tap(name: str) -> int:
    """Create a network device and return its file.

    Packets that the device sends are read from the file; packets written to the file arrive at the
    device.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device


def carry(ends: tuple[int, int], delay: float) -> None:
    """Move frames between two taps, each `delay` seconds after it was sent."""
    under_way: deque[tuple[float, int, bytes]] = deque()
    other = dict(zip(ends, ends[::-1], strict=True))
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        ready, _, _ = select.select(ends, (), (), wait)
        for end in ready:
            try:
                frame = os.read(end, FRAME_NBYTES)
            except OSError:
                # The device is down: the cable is cut.
                time.sleep(0.001)
                continue
            under_way.append((time.monotonic() + delay, other[end], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            try:
                os.write(end, frame)
            except OSError:
                # Lost, as what a full queue or a cut cable drops.
                continue


if __name__ == "__main__":
    switch, seconds = int(sys.argv[1]), float(sys.argv[2])
    host = tap("eth0")
    print("eth0 is there", flush=True)
    carry((switch, host), seconds)
