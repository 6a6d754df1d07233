"""Cells on a Dask cluster: on this machine, or on whatever a scheduler at some address has (Slurm, Kubernetes, hosts).

Dask carries cells out and rows back; which cell goes where is decided here, and only the parent writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from .cells import Cell, Row
from .errors import StudyError
from .execution import MOST_DEATHS, Assignment, Failure, Worker
from .pool import check_workers, packed_study, refuse_other_inputs

__all__ = ["Cluster"]

#: Seconds to reach the scheduler, and for the first worker to come.
_SECONDS_TO_CONNECT = 15
_SECONDS_FOR_WORKERS = 600
#: Seconds between two looks at which workers there are: adaptive clusters grow and shrink.
_LOOK_EVERY = 2.0
#: Seconds to fetch a finished row from the worker that has it.
_SECONDS_TO_FETCH = 30
#: Name of the task, in Dask's dashboard and logs.
_TASK = "gemmsim-cell"


class Cluster:
    """An Executor on the Dask scheduler at ``address``, such as ``tcp://10.0.0.1:8786``; "local" starts one here.

    Rows arrive as they are finished. They equal those of ``Inline``, except for time columns and the versions and
    machine in each row. If a worker dies, its nanny or deployer replaces it, and its cells are computed again. The
    third death at one cell makes it a Failure. Each thread of a worker computes one cell at a time, with one thread
    of PyTorch. With several threads, all cells that a worker computes when it dies count as the cause. Workers may
    join and leave.

    Args:
        address: address of the scheduler, or "local".
        workers: number of processes of a local cluster; None for one for each core.

    Raises:
        StudyError: without Dask's distributed; for fewer than one worker or more than 1,024.

    Example:
        >>> gs.study.Cluster("local", workers=0)
        Traceback (most recent call last):
            ...
        gemmsim.study.errors.StudyError: workers = 0; allowed: 1 to 1,024 processes.
    """

    def __init__(self, address: str, workers: int | None = None) -> None:
        _distributed()
        if workers is not None:
            check_workers(workers)
        self.address = address
        self.workers = workers

    def run(self, worker: Worker, folder: Path, cells: Sequence[Cell]) -> Generator[Row | Failure, None, None]:
        """Yield rows in the order in which they are finished.

        Raises:
            StudyError: if the scheduler cannot be reached or is lost, no worker joins, the study cannot be sent, or a
                worker prepared something else than this process did. Any error of ``evaluate`` is raised unchanged.

        Example:
            >>> worker = gs.study.Worker(gs.study.kind("growth")(K=64), folder=None)
            >>> list(gs.study.Cluster("nowhere").run(worker, None, worker.study.cells()))
            Traceback (most recent call last):
                ...
            gemmsim.study.errors.StudyError: cannot reach a Dask scheduler at 'nowhere': Invalid url scheme. ...
        """
        study = packed_study(worker.study)
        with _client(self.address, self.workers) as client:
            yield from _Job(client, study, folder, worker.fingerprint, cells).outcomes()


class _Job:
    """One run on a cluster: the cells that are out, and what came back."""

    def __init__(self, client: Any, study: bytes, folder: Path, fingerprint: str, cells: Sequence[Cell]) -> None:
        self._client = client
        self._study, self._folder, self._fingerprint = study, str(folder.resolve()), fingerprint
        self._assignment = Assignment(cells)
        self._left = len(cells)
        self._came: queue.Queue[Any] = queue.Queue()
        self._count = 0
        #: future -> (address of the worker that computes it, cell)
        self._out: dict[Any, tuple[str, Cell]] = {}
        self._load: Counter[str] = Counter()
        self._threads: dict[str, int] = {}
        self._looked = -_LOOK_EVERY

    def outcomes(self) -> Generator[Row | Failure, None, None]:
        while self._left:
            for failure in self._look():
                self._left -= 1
                yield failure
            self._fill()
            try:
                future = self._came.get(timeout=_LOOK_EVERY)
            except queue.Empty:
                self._refuse_lost_scheduler()
                continue
            # One that is not out was meant for a worker that is gone, and given again.
            address, cell = self._out.pop(future, (None, None))
            if address is None or cell is None:
                continue
            self._load[address] -= 1
            outcome = self._outcome(future, address, cell)
            if outcome is not None:
                self._left -= 1
                yield outcome

    def _look(self) -> list[Failure]:
        """Which workers there are, every two seconds; cells of one that is gone are given again, or given up."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return []
        self._looked = time.monotonic()
        with contextlib.suppress(OSError):
            self._threads = dict(self._client.nthreads())
        failures = []
        for address in [known for known in self._load if known not in self._threads]:
            del self._load[address]
            for future in [out for out, (meant, _) in self._out.items() if meant == address]:
                failures += self._lost(future, address, self._out.pop(future)[1])
            self._assignment.give_back(address, None)
        return failures

    def _lost(self, future: Any, address: str, cell: Cell) -> list[Failure]:
        future.cancel()
        if self._assignment.give_back(address, cell):
            return []
        return [Failure(cell, f"the Dask worker that computed it died, {MOST_DEATHS} times at this cell")]

    def _fill(self) -> None:
        for address, threads in self._threads.items():
            while self._load[address] < threads:
                cell = self._assignment.take(address)
                if cell is None:
                    return
                self._submit(address, cell)

    def _submit(self, address: str, cell: Cell) -> None:
        self._count += 1
        # For this worker alone: when it is gone, this process decides who gets the cell. The scheduler would forget
        # tasks that only prefer a worker if there is no other one at that moment (distributed 2026.8).
        future = self._client.submit(
            _compute,
            self._study,
            self._folder,
            self._fingerprint,
            cell,
            key=f"{_TASK}-{cell.key}-{os.getpid()}-{self._count}",
            workers=[address],
            pure=False,
        )
        self._out[future] = (address, cell)
        self._load[address] += 1
        future.add_done_callback(self._came.put)

    def _outcome(self, future: Any, address: str, cell: Cell) -> Row | Failure | None:
        """The cell's row; None if its worker died before it gave the row away: then the cell is given again."""
        distributed = _distributed()
        if future.status == "error":
            error = future.exception()
            if isinstance(error, distributed.KilledWorker):
                return Failure(cell, f"the Dask workers that computed it died: {error}")
            raise error
        if future.status != "finished":
            raise StudyError(f"the Dask scheduler lost cell {cell.key} ({future.status}). {_AGAIN}")
        try:
            row: Row = future.result(timeout=_SECONDS_TO_FETCH)
        except (OSError, TimeoutError):
            self._lost(future, address, cell)
            return None
        return row

    def _refuse_lost_scheduler(self) -> None:
        if self._client.status not in ("running", "connecting"):
            raise StudyError(f"the connection to the Dask scheduler was lost. {_AGAIN}")


_AGAIN = "Finished cells are safe; give the same command again."


# On a worker: a thread computes one cell at a time and keeps what it prepared.
_here = threading.local()


def _compute(study: bytes, folder: str, fingerprint: str, cell: Cell) -> Row:
    """The row of ``cell``; StudyError if what is prepared here is not what the parent prepared."""
    import pickle

    import torch

    # For the calling thread: a pool's threads do not get it from each other.
    torch.set_num_threads(1)
    known = getattr(_here, "known", None)
    if known is None or known[0] != (study, folder):
        worker = Worker(pickle.loads(study), _shared(folder))
        refuse_other_inputs(worker.fingerprint, fingerprint, "a Dask worker")
        _here.known = known = ((study, folder), worker)
    row: Row = known[1].compute(cell)
    return row


def _shared(folder: str) -> Path:
    """The parent's folder where this machine sees it, else an empty one of this process."""
    path = Path(folder)
    return path if path.is_dir() else Path(tempfile.mkdtemp(prefix="gemmsim-study-"))


@contextlib.contextmanager
def _client(address: str, workers: int | None) -> Iterator[Any]:
    """A client of the scheduler, with at least one worker; both are closed at the end, a foreign cluster is not."""
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        if address == "local":
            place = stack.enter_context(_local_cluster(workers))
        else:
            _refuse_unreachable(address)
            place = address
        try:
            client = stack.enter_context(distributed.Client(place, timeout=_SECONDS_TO_CONNECT, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:
            raise _unreachable(address, error) from error
        try:
            client.wait_for_workers(1, timeout=_SECONDS_FOR_WORKERS)
        except (OSError, TimeoutError) as error:
            raise StudyError(
                f"no worker came to the Dask scheduler at '{address}' within {_SECONDS_FOR_WORKERS} s. Start some: "
                f"dask worker {address}; of a deployer, cluster.scale(...): one that adapts from nothing starts none."
            ) from error
        yield client


def _refuse_unreachable(address: str) -> None:
    """Raises StudyError where nobody listens, at once and before a client starts to try for its whole timeout."""
    from distributed.comm.addressing import get_address_host_port

    try:
        host, port = get_address_host_port(address, strict=True)
        socket.create_connection((host, port), timeout=_SECONDS_TO_CONNECT).close()
    except (OSError, ValueError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> StudyError:
    return StudyError(
        f"cannot reach a Dask scheduler at '{address}': {error}. Give its address, such as tcp://10.0.0.1:8786 "
        "('dask scheduler' prints it), or --cluster local."
    )


@contextlib.contextmanager
def _local_cluster(workers: int | None) -> Iterator[Any]:
    """Processes here under nannies, without a dashboard."""
    distributed = _distributed()
    with distributed.LocalCluster(
        n_workers=workers or os.cpu_count() or 1,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise StudyError("a cluster needs Dask's distributed. Install it: pip install 'gemmsim[cluster]'.") from error
    return distributed
