"""Writing files in a background thread, so that a training does not wait for the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from colonnade.common.trouble import Trouble
from colonnade.errors import ColonnadeError

log = logging.getLogger(__name__)

Job = Callable[[], None]


class BackgroundWriter:
    """A thread that does one job after the other. Errors of jobs are logged."""

    def __init__(self, trouble: Trouble | None = None) -> None:
        self._trouble = trouble or Trouble(log)
        self._changed = threading.Condition()
        self._next: Job | None = None
        self._busy = False
        self.spent = 0.0  # seconds of processor time that the last job took from the training
        self.total = 0.0  # that all jobs took
        threading.Thread(target=self._work, daemon=True, name="writing").start()

    @property
    def idle(self) -> bool:
        with self._changed:
            return self._is_idle()

    def _is_idle(self) -> bool:
        return self._next is None and not self._busy

    def __call__(self, job: Job) -> None:
        """Give the thread a job. If another job waits already, this blocks until that one has
        begun."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is None)
            self._next = job
            self._changed.notify_all()

    def wait(self) -> None:
        """Return when all jobs are done."""
        with self._changed:
            self._changed.wait_for(self._is_idle)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None)
                job, self._next, self._busy = self._next, None, True
                self._changed.notify_all()
            begun = time.thread_time()
            try:
                if job is not None:
                    job()
                    self._trouble.over("checkpoint")
            except ColonnadeError as error:
                self._trouble.tell(str(error))
            finally:
                with self._changed:
                    self._busy, self.spent = False, time.thread_time() - begun
                    self.total += self.spent
                    self._changed.notify_all()
