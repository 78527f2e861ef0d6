"""SSH server inside this process, for programs that start remote ones."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

__all__ = ["SSHServer"]


class SSHServer:
    """Server that runs commands in a shell, without key or password.

    Parameters
    ----------
    home : Path
        Where to write the client's settings: with this as ``HOME``, all hosts called ``node…`` are
        this server.
    """

    def __init__(self, home: Path) -> None:
        import asyncssh

        self._ssh = asyncssh
        self._shells: list[asyncio.subprocess.Process] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        key = asyncssh.generate_private_key("ssh-ed25519")
        listening = asyncio.run_coroutine_threadsafe(self._listen(key), self._loop)
        self._listener = listening.result(timeout=30)
        port = self._listener.get_port()
        public = key.export_public_key().decode()
        settings = home / ".ssh"
        settings.mkdir()
        (settings / "config").write_text(f"Host node*\n HostName 127.0.0.1\n Port {port}\n")
        (settings / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")

    def close(self) -> None:
        """End running commands, and stop listening."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()

    async def _end(self) -> None:
        self._listener.close()
        await self._listener.wait_closed()
        for shell in self._shells:
            if shell.returncode is None:
                shell.kill()
        await asyncio.gather(*(shell.wait() for shell in self._shells))
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)

    async def _listen(self, key: Any) -> Any:
        return await self._ssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[key],
            server_factory=self._open_to_all,
            process_factory=self._run,
            encoding=None,
        )

    def _open_to_all(self) -> Any:
        server = self._ssh.SSHServer()
        server.begin_auth = lambda user: False
        return server

    async def _run(self, process: Any) -> None:
        pipe = asyncio.subprocess.PIPE
        shell = await asyncio.create_subprocess_shell(
            f"exec {process.command}", stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        self._shells.append(shell)
        await asyncio.gather(
            _copy(shell.stdout, process.stdout), _copy(shell.stderr, process.stderr)
        )
        process.exit(await shell.wait())


async def _copy(source: asyncio.StreamReader | None, target: Any) -> None:
    while source is not None and (line := await source.readline()):
        if target.channel.is_closing():
            return
        target.write(line)
