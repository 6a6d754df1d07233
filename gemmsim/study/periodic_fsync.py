"""Forcing a file that grows to the disk now and then, beside what else is done: a disk takes milliseconds for it."""

from __future__ import annotations

import contextlib
import os
import threading
import time

__all__ = ["SYNC_EVERY", "Forcing"]

#: Seconds that what was written may lie in the operating system's memory before it is forced to the disk.
SYNC_EVERY = 1.0


class Forcing:
    """Calls ``os.fsync`` in a thread of its own, about every second in which something was written.

    An OSError of it is raised by the next call.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def written(self, descriptor: int) -> None:
        """Something was written to ``descriptor``, which may be closed afterwards.

        Raises:
            OSError: forcing it to the disk failed, now or before.
        """
        self._raise()
        if time.monotonic() - self._last > SYNC_EVERY and (self._thread is None or not self._thread.is_alive()):
            self._last = time.monotonic()
            self._thread = threading.Thread(target=self._force, args=(os.dup(descriptor),), daemon=True)
            self._thread.start()

    def finish(self, descriptor: int) -> None:
        """Forces all that was written, and waits for that.

        Raises:
            OSError: it failed, now or before.
        """
        if self._thread is not None:
            self._thread.join()
        self._raise()
        os.fsync(descriptor)

    def _force(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._error = error
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
