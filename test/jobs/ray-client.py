"""Drives a service with the unmodified Ray client.

Arguments: an empty directory, then the addresses of the service's replicas.
Requests about a job use a different replica than its submit, if there are several.
Exits with 0 when every result is as expected."""

import asyncio
import os
import subprocess
import sys

from ray.job_submission import JobStatus, JobSubmissionClient

WORK, *ADDRESSES = sys.argv[1:]
RAY = os.path.join(os.path.dirname(sys.executable), "ray")


submits = 0


def address_for(name):
    """Returns the replica for a command: submits rotate, other commands use the next replica."""
    global submits
    if name in ("submit", "submit_job"):
        submits += 1
        return ADDRESSES[submits % len(ADDRESSES)]
    return ADDRESSES[(submits + 1) % len(ADDRESSES)]


class Clients:
    """Ray clients for all replicas; `address_for` chooses the client of each call."""

    def __init__(self):
        self._clients = {address: JobSubmissionClient(address) for address in ADDRESSES}

    def __getattr__(self, name):
        return lambda *args, **kwargs: getattr(self._clients[address_for(name)], name)(*args, **kwargs)


def ray(*arguments, code=0):
    address = address_for(arguments[0])
    ran = subprocess.run(
        [RAY, "job", *arguments, "--address", address] if "--" not in arguments else spread(arguments, address),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert ran.returncode == code, (arguments, ran.returncode, ran.stdout)
    return ran.stdout


def spread(arguments, address):
    at = arguments.index("--")
    return [RAY, "job", *arguments[:at], "--address", address, *arguments[at:]]


def expect(condition, *shown):
    assert condition, shown


def raises(call, *parts):
    try:
        call()
    except RuntimeError as error:
        expect(all(part in str(error) for part in parts), str(error), parts)
        return
    raise AssertionError("it should have failed")


def use_cli():
    directory = os.path.join(WORK, "cli")
    os.makedirs(os.path.join(directory, "below"))
    with open(os.path.join(directory, "script.py"), "w") as script:
        script.write("import os, sys\nprint('args', sys.argv[1:], os.environ['FOO'], sorted(os.listdir('.')))\n")
    said = ray(
        "submit", "--working-dir", directory, "--runtime-env-json", '{"env_vars": {"FOO": "bar"}}',
        "--submission-id", "cli-1", "--metadata-json", '{"owner": "me"}', "--", "python", "script.py", "a b",
    )
    expect("args ['a b'] bar" in said and "Job 'cli-1' succeeded" in said, said)
    expect("submission_id='cli-1'" in ray("list"))
    expect("Job 'cli-1' succeeded" in ray("status", "cli-1"))
    expect("args ['a b'] bar" in ray("logs", "cli-1"))
    said = ray("submit", "--submission-id", "cli-2", "--", "sh", "-c", "echo bad; exit 3", code=1)
    expect("Job 'cli-2' failed" in said and "exit code 3" in said, said)
    expect("already exists" in ray("submit", "--submission-id", "cli-2", "--", "true", code=1))
    ray("submit", "--no-wait", "--submission-id", "cli-3", "--", "sleep", "1000")
    expect("Job 'cli-3' was stopped" in ray("stop", "cli-3"))
    expect("deleted successfully" in ray("delete", "cli-3"))
    expect("Job cli-3 does not exist" in ray("status", "cli-3", code=1))
    ray("submit", "--no-wait", "--submission-id", "cli-4", "--", "sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.3; done")
    said = ray("logs", "--follow", "cli-4")
    expect("line 1\nline 2\nline 3" in said and "Job 'cli-4' succeeded" in said, said)


async def tail(client, job_id):
    return "".join([lines async for lines in client.tail_job_logs(job_id)])


def use_sdk():
    client = Clients()
    module = os.path.join(WORK, "shared_words")
    os.makedirs(module)
    with open(os.path.join(module, "__init__.py"), "w") as source:
        source.write("word = 'shared'\n")
    job_id = client.submit_job(
        entrypoint="python -c 'import shared_words; print(shared_words.word)'",
        runtime_env={"py_modules": [module], "env_vars": {"A": "1"}},
        metadata={"a": "b"},
        entrypoint_num_cpus=0.5,
        entrypoint_memory=256 * 1024 * 1024,
    )
    expect(asyncio.run(tail(client, job_id)) == "shared\n", client.get_job_logs(job_id))
    info = client.get_job_info(job_id)
    expect(info.status == JobStatus.SUCCEEDED and info.driver_exit_code == 0, info)
    expect(info.metadata == {"a": "b"} and info.end_time >= info.start_time > 1600000000000, info)
    expect(any(job.submission_id == job_id for job in client.list_jobs()))
    same = client.submit_job(entrypoint="true", submission_id="sdk-1")
    expect(client.submit_job(entrypoint="true", submission_id="sdk-1") == same)
    raises(lambda: client.submit_job(entrypoint="false", submission_id="sdk-1"), "409", "already exists")
    running = client.submit_job(entrypoint="sleep 1000")
    asyncio.run(until_running(client, running))
    raises(lambda: client.delete_job(running), "409", "non-terminal state RUNNING")
    expect(client.stop_job(running) is True)
    waiting = client.submit_job(entrypoint="true", entrypoint_num_gpus=1)
    expect(client.get_job_status(waiting) == JobStatus.PENDING)
    expect(client.stop_job(waiting) is True and client.get_job_status(waiting) == JobStatus.STOPPED)
    expect(client.stop_job(waiting) is False and client.delete_job(waiting) is True)
    raises(lambda: client.get_job_info("nope"), "404", "Job nope does not exist")
    raises(lambda: client.submit_job(entrypoint="true", runtime_env={"image_uri": "x"}), "400", "image_uri")


async def until_running(client, job_id):
    for _ in range(600):
        if client.get_job_status(job_id) == JobStatus.RUNNING:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the job does not start")


use_cli()
use_sdk()
print("all well")
