"""Where local worker processes come from: a server that loads the libraries once and forks them off when asked.

Nothing of Residuum is imported here, so that a command can start the server before it loads anything itself.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext

# what stages load; none of it runs a torch operator, whose threads would not survive the fork
LOADED = ["residuum.experiments.store", "sklearn.svm", "sklearn.datasets", "scipy.special"]
LOADED += ["torch._dynamo", "torch._decomp.decompositions_for_jvp"]  # torch loads them for gradients of single samples
METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # the libraries of other systems do not like to be forked


def worker_context() -> BaseContext:
    """Return how worker processes are started, with the server running where there is one.

    >>> worker_context().get_start_method() == METHOD
    True
    """
    context = multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(LOADED)
        _start_server()
    return context


def _start_server() -> None:
    """Start the server unless it runs; Ctrl-C is for the parent, at whose end the server ends."""
    resource_tracker.ensure_running()  # it comes first anyway, and would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
