"""Executors of stages: this process, a pool of local processes, or a cluster. No other module knows which.

Local workers come from a server that loads the libraries once and forks them off. Nothing heavy is imported here, so
that a command can start the server before it loads the same libraries itself.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

from residuum.core.errors import InputError, LostProcessError, first_line

if TYPE_CHECKING:
    from distributed import Client

LIBRARIES = ("torch", "numpy", "scikit-learn")  # that compute: results depend on their versions
LEADER = "RESIDUUM_LEADER"  # the process id of the first of several processes that share the work
RESUMES = "finished stages are in the store, and the same command resumes"
REACH = 6  # seconds for the scheduler of a cluster to answer
ANSWER = 60  # seconds for its workers to come and to answer
GRACE = 5.0  # seconds for a worker process to end before it is made to
RETRIES = 3  # a stage whose worker died is given to another one this often
# what stages load; none of it runs a torch operator, whose threads would not survive the fork
PRELOADED = ["residuum.studies.store", "sklearn.svm", "sklearn.datasets", "scipy.special"]
PRELOADED += ["torch._dynamo", "torch._decomp.decompositions_for_jvp"]  # for gradients of single samples
METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # the libraries of other systems do not like to be forked


def engine(workers: int = 1, cluster: str | None = None) -> AbstractContextManager[Executor | None]:
    """Return the context of an executor for `run`: a cluster's, a pool of `workers` processes, or None for one worker.

    Leaving the block by an interrupt or an error stops the local processes at once; finished stages are in the store.

    >>> with engine(workers=1) as executor:
    ...     executor is None
    True
    """
    if cluster is not None:
        return _cluster(cluster)
    return nullcontext() if workers == 1 else _pool(workers)


class Pool(ProcessPoolExecutor):
    """A pool of local processes that says how many stages it can work on at once."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, mp_context=worker_context(), initializer=_follow_the_parent)
        self.workers = workers


def worker_context() -> BaseContext:
    """Return how worker processes are started, with the server running where there is one."""
    context = multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(PRELOADED)
        resource_tracker.ensure_running()  # it comes first anyway, and would let interrupts through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the parent
        try:
            forkserver.ensure_running()
        except OSError:  # the temporary folder has too long a path for the server's socket
            return multiprocessing.get_context("spawn")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    pool = Pool(workers)
    try:
        yield pool
    except BaseException as error:
        processes = multiprocessing.active_children()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(GRACE)
            process.kill()
        if isinstance(error, BrokenExecutor):
            raise LostProcessError(f"a worker process was killed or ran out of memory; {RESUMES}") from None
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _follow_the_parent() -> None:
    """Leave interrupts to the parent, and end when it ends: a killed run must not leave workers behind."""
    import torch

    def end_with_the_parent() -> None:
        parent = multiprocessing.parent_process()  # who asked for this process, not the server that forked it off
        if parent is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    torch.set_num_threads(1)  # for what a stage does before it sets its own number


def end_with_the_leader() -> None:
    """Let the processes that share each stage end when the first one ends, which started them.

    Once they are connected they notice its end anyway; before, they would wait for it.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0":
        os.environ[LEADER] = str(os.getpid())
        return
    leader = int(os.environ.get(LEADER, os.getppid()))  # torchrun starts all of them, and has no leader among them

    def end_without_it() -> None:
        while os.getppid() == leader:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=end_without_it, daemon=True).start()


class Cluster(Executor):
    """The workers of a dask scheduler; `check` notices when no worker is left."""

    def __init__(self, client: "Client", address: str, patience: float = 600.0) -> None:
        self._client, self._executor = client, client.get_executor(retries=RETRIES)
        self._address, self._patience = address, patience
        self._alone_since: float | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":  # noqa: ANN401 (as Executor)
        """Give a call to a worker."""
        future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def check(self) -> None:
        """Say when no worker is left, and after `patience` seconds give up; a lost scheduler is an error at once."""
        if self._client.status != "running":
            raise LostProcessError(f"the scheduler at {self._address} is gone; {RESUMES}")
        if self._client.nthreads():
            self._alone_since = None
            return
        alone = f"the scheduler at {self._address} has no workers left"
        now = time.monotonic()
        if self._alone_since is None:
            print(f"residuum: {alone}; waiting {self._patience:.0f} s for one", file=sys.stderr, flush=True)  # noqa: T201
            self._alone_since = now
        if now - self._alone_since >= self._patience:
            raise LostProcessError(f"{alone}; {RESUMES}")


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        from distributed import CancelledError, Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        raise InputError('--cluster needs dask.distributed; run pip install ".[dist]" in a clone') from None
    try:
        client = Client(address, timeout=REACH)
    except (OSError, ValueError, MemoryError, RuntimeError) as error:
        why = "no dask scheduler answers there" if isinstance(error, MemoryError) else first_line(error)
        text = f"cannot reach a scheduler at {address} ({why}); expected tcp://host:port of a running one"
        raise InputError(text) from None
    with client:
        _check_workers(client, address)
        try:
            yield Cluster(client, address)
        except (KilledWorker, CommClosedError, CancelledError) as error:
            lost = "workers died over one stage" if isinstance(error, KilledWorker) else "the scheduler is gone"
            raise LostProcessError(f"{lost} at {address}; {RESUMES}") from None


def library_versions() -> dict[str, str]:
    """Return the versions of Residuum and of the libraries that compute, in this process."""
    return {library: version(library) for library in ("residuum", *LIBRARIES)}


def _check_workers(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=ANSWER)
    except TimeoutError:
        raise InputError(f"the scheduler at {address} has no workers; start some and try again") from None
    here = library_versions()
    futures = {worker: client.submit(library_versions, workers=[worker], pure=False) for worker in client.nthreads()}
    try:
        answers = {worker: future.result(timeout=ANSWER) for worker, future in futures.items()}
    except TimeoutError:
        raise InputError(f"a worker of {address} does not answer within {ANSWER} s; stop it and try again") from None
    for worker, there in answers.items():
        for library, ours in here.items():
            if there[library] != ours:
                text = f"worker {worker} of {address} has {library} {there[library]}, this process {ours}"
                raise InputError(f"{text}; install the same versions everywhere")
