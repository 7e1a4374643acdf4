# Made by `npm run generate` from _async/jobs.py.
"""Jobs: commands that run to their end."""

from __future__ import annotations

import time
import os
from typing import Any, Iterator, Dict, List, Mapping, Optional, Sequence, Union

from .. import types as wire
from .._runs import Environment
from .._wire import Request, given
from .code import Code
from .connection import Connection

MEBIBYTE = 1024 * 1024
LOOK_AGAIN = 0.5
OVER = frozenset(["SUCCEEDED", "FAILED", "STOPPED"])


class Jobs:
    """Submits and reads jobs. Methods fail with `RookeryError`, also if a job does not exist."""

    def __init__(self, connection: Connection, code: Code) -> None:
        self._connection = connection
        self._code = code

    def submit(
        self,
        command: str,
        *,
        id: Optional[str] = None,
        code: Optional[Union[str, os.PathLike[str]]] = None,
        env: Optional[Environment] = None,
        pip: Optional[Sequence[str]] = None,
        metadata: Optional[Mapping[str, str]] = None,
        cpus: Optional[float] = None,
        memory_mb: Optional[float] = None,
        retries: Optional[int] = None,
    ) -> str:
        """Submits one line, which `/bin/sh -c` runs, and returns the id of the job.

        - `id`: the id of the job; by default the service makes one.
        - `code`: a directory to pack and upload. The job runs in a copy of it.
        - `pip`: Python packages to install before the command starts.
        - `cpus`: number of CPU cores; fractions are allowed.
        - `memory_mb`: memory in MiB.
        - `retries`: maximum number of runs after a failed one.
        """
        told: Dict[str, str] = {**(metadata or {})}
        if retries is not None:
            told["rookery.retries"] = str(retries)
        body: Dict[str, Any] = {
            "entrypoint": command,
            "metadata": told,
            "runtime_env": given(
                working_dir=None if code is None else self._code.upload_working_directory(code),
                env_vars=env,
                pip=None if pip is None else list(pip),
            ),
            **given(
                submission_id=id,
                entrypoint_num_cpus=cpus,
                entrypoint_memory=None if memory_mb is None else memory_mb * MEBIBYTE,
            ),
        }
        job: str = (self._connection.call(Request("submitJob", body=body)))["submission_id"]
        return job

    def rerun(self, id: str) -> str:
        """Submits the request of a job again, as a new job, and returns its id. The job may have any state."""
        job: str = (self._connection.call(Request("rerunJob", {"id": id})))["submission_id"]
        return job

    def get(self, id: str) -> wire.Job:
        """Returns the record of a job."""
        job: wire.Job = self._connection.call(Request("getJob", {"id": id}))
        return job

    def list(self) -> List[wire.Job]:
        """Returns the records of all jobs of the tenant, the newest first."""
        jobs: List[wire.Job] = self._connection.call(Request("listJobs"))
        return jobs

    def logs(self, id: str) -> str:
        """Returns the whole log of a job as it is now."""
        logs: str = (self._connection.call(Request("getJobLogs", {"id": id})))["logs"]
        return logs

    def follow(self, id: str) -> Iterator[str]:
        """Yields lines of the log as the service receives them, until the job ends."""
        request = Request("getJobLogs", {"id": id}, {"follow": True}, is_unbounded=True)
        return self._connection.follow(request, is_whole=True)

    def wait(self, id: str) -> wire.Job:
        """Waits until the job has succeeded, failed or been stopped, and returns its record.

        The wait has no limit.
        """
        while True:
            job = self.get(id)
            if job["status"] in OVER:
                return job
            time.sleep(LOOK_AGAIN)

    def stop(self, id: str) -> None:
        """Requests the end of a job and returns at once.

        The service sends SIGTERM to all its processes, and later SIGKILL. `wait` returns when they have ended.
        """
        self._connection.call(Request("stopJob", {"id": id}, may_repeat=True))

    def delete(self, id: str) -> None:
        """Deletes the record and the log of a job that has ended. Fails while the job is queued or runs."""
        self._connection.call(Request("deleteJob", {"id": id}))
