"""The zygote: keeps pre-forked workers ready, and transfers each start to one of them.

The zygote never reads a start request, because that contains the environment and secrets. Its fork server
(`forking`) forks the workers: a copy of the zygote in which no Python runs. The zygote has a single thread,
which waits in `epoll` when there is nothing to do.
"""

import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time

from . import cgroups, forking, frames, immortal, layers, lockfile, network, network_names, peers, plan, process, rehearsal, syscalls, waiting

_BACKLOG = 4096
#: Number of bytes of a refused request that are read, and discarded, at once.
_REFUSED_BYTES = 64 * 1024
_MOST_CONTROL_CONNECTIONS = 64
_LARGEST_REQUEST = 65536
#: Interval between attempts. A group can be removed only a moment after its last process has ended.
_REMOVE_RETRY_SECONDS = 0.02
_REMOVE_TRIES = 250
#: Time limit for the end of workers that are not needed.
_END_SECONDS = 2
_LOOK_SECONDS = 0.002
#: Number of failed workers in a row after which none is made until a start needs one.
_MOST_FAILURES = 3
_ETC_REFRESH_SECONDS = 1.0
#: Number of digits of a pid: the kernel has at most four million.
_LONGEST_PID = 7
#: Delay between a start and the next new worker while half of the workers are ready. Meanwhile the started
#: instance loads its code and answers a call. Many instances are deleted right after that.
_REFILL_SECONDS = 0.02
#: Interval at which a zygote without a service checks that its data directory still exists.
_LOST_LOOK_SECONDS = 10.0
#: Socket of starts whose requests come later. Until then their workers count as ready, for the holder of the
#: connection.
_LATER = "start-later"
#: The sockets of starts, and the networks of their workers; None for the usual network.
_STARTS = {"start": None, _LATER: None, "start-own": forking.OWN, "start-none": forking.NONE}


class _Worker:
    def __init__(self, name, control, asked):
        self.name = name
        #: The worker's network if it is not the usual one, otherwise None.
        self.asked = asked
        self.control = control
        self.pid = None
        self.instance = None
        self.handed_over = False
        #: True while the worker is reserved for a start whose request comes later.
        self.is_reserved = False
        #: Connection of a start that waits for an unfinished worker, and the reason if the worker could not
        #: be made.
        self.waiting = None
        self.lack = None

    @property
    def is_ready(self):
        """True if no start has begun that uses this worker."""
        return not self.handed_over or self.is_reserved

    def be_waited_for(self, connection):
        """Keeps the connection of a start, to report if the worker cannot be made."""
        if self.pid is None:
            try:
                self.waiting = connection.dup()
            except OSError:  # no descriptor left: the caller only sees the connection end
                pass

    def drop_waiting(self):
        """Releases the connection, which the worker answers from now on."""
        if self.waiting is not None:
            self.waiting.close()
            self.waiting = None


class Zygote:
    def __init__(self, config):
        self._config = config
        run = config["runDir"]
        self._lock = lockfile.LockFile(run, config["name"])
        self._directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._controls = {}
        self._workers = {}
        self._has_refused_peer = False
        #: Connections of refused starts whose callers have not disconnected yet.
        self._refused = {}
        self._running = {}
        self._removals = {}
        #: Beginning of the workers' names. A number follows.
        self._prefix = "%s-%s" % (config["name"], process.life())
        self._counter = 0
        self._failures = 0
        #: Earliest time for the next worker while there are enough.
        self._refill_at = 0
        self._retired = False
        self._terminated = False
        self._idle_since = None
        self._etc_checked = time.monotonic()

    def lock(self):
        """Takes the zygote's lock. Returns False when another zygote of this name lives."""
        return self._lock.take()

    def prepare(self):
        """Does all slow work before the first worker. Raises `forking.BecomeServer` in the fork server."""
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        title = process.Title()
        title.set("rookery: zygote %s" % self._config["name"])
        self._plan = plan.Plan(self._config, title)
        self._plan.find_networks()
        rehearsal.prepare()
        immortal.make_modules_immortal()
        if hasattr(gc, "freeze"):
            # No collection before this: it would leave holes in the shared pages, which each instance would
            # fill, page by page.
            gc.freeze()  # novm
        else:
            # Python 3.6: young collections of an instance skip old objects, and so do not write to them.
            gc.collect()
        # Started before the zygote opens descriptors that the fork server would keep open.
        self._forks = forking.start_server(self._plan)
        self._wake = waiting.Wakeup()
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._epoll = select.epoll()
        self._epoll.register(self._wake.fileno(), select.EPOLLIN)
        self._peers = peers.Peers()
        self._control_listener = self._listen("control")
        # The socket of a start determines its network, because only a worker of that network reads the
        # request.
        self._start_listeners = {}
        for kind, asked in _STARTS.items():
            listener = self._listen(kind)
            self._start_listeners[listener.fileno()] = (listener, asked, kind == _LATER)
        self._epoll.register(self._forks.fileno(), select.EPOLLIN)
        self._sweep()

    def run(self):
        """Serves until the zygote is no longer needed."""
        # The idle time starts after the preparation. On a busy machine no service could connect otherwise.
        self._idle_since = time.monotonic()
        self._refill()
        while not self._is_done():
            try:
                events = self._epoll.poll(self._time_left())
            except InterruptedError:
                continue
            for descriptor, _event in events:
                self._handle(descriptor)
            if self._terminated:
                self._retire()
            if not self._controls and lockfile.is_removed(self._directory):
                self._end_lost()
            self._retry_removals()
            self._refresh_etc()
            self._refill()
        self._close()

    # -- connections

    def _listen(self, kind):
        name = "%s.%s.sock" % (self._config["name"], kind)
        try:
            os.unlink(name, dir_fd=self._directory)
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("/proc/self/fd/%d/%s" % (self._directory, name))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        return listener

    def _handle(self, descriptor):
        if descriptor in self._start_listeners:
            self._accept_starts(*self._start_listeners[descriptor])
        elif descriptor == self._control_listener.fileno():
            self._accept_control()
        elif descriptor == self._wake.fileno():
            self._wake.clear()
            self._reap()
        elif descriptor == self._forks.fileno():
            self._hear_forks()
        elif descriptor in self._workers:
            self._hear_worker(self._workers[descriptor])
        elif descriptor in self._controls:
            self._serve_control(descriptor)
        elif descriptor in self._refused:
            self._hear_refused(descriptor)

    def _accept_starts(self, listener, asked, is_later):
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            with connection:
                self._start(connection, asked, is_later)

    def _is_service(self, connection):
        if self._peers.is_service(connection):
            return True
        if not self._has_refused_peer:
            # Logged once, because a flood of connections must not fill the disk.
            self._has_refused_peer = True
            _log("a connection was refused: its peer is no process of the service")
        return False

    def _start(self, connection, asked, is_later):
        """Transfers the connection to a worker. The zygote takes no further part in the start."""
        if not self._is_service(connection):
            self._refuse(connection, "only the service itself may start a sandbox", "failed_precondition")
            return
        if asked is not None and not self._plan.layers.has("net"):
            self._refuse(connection, network.IMPOSSIBLE, "failed_precondition")
            return
        # Ready workers first. An unfinished worker is still faster than a new one.
        ready = [one for one in self._workers.values() if not one.handed_over and one.asked == asked]
        ready.sort(key=lambda one: one.pid is None)
        for candidate in ready + [None]:
            chosen = candidate
            try:
                if chosen is None:
                    chosen = self._make_worker(asked)
                hand_over(chosen.control, connection)
                chosen.handed_over = True
                chosen.is_reserved = is_later
                chosen.be_waited_for(connection)
                if not is_later:
                    self._refill_at = time.monotonic() + _REFILL_SECONDS
                return
            except OSError as error:
                if candidate is None:
                    self._refuse(connection, self._why_not(chosen, error))

    def _why_not(self, made, error):
        """
        Returns the reason why a worker cannot serve a start.

        `made` is the worker that was just ordered, or None.
        """
        if made is not None and isinstance(error, (BrokenPipeError, ConnectionResetError)):
            # The worker could not be forked and has ended. Its last message has a better reason.
            self._hear_worker(made)
            if made.lack is not None:
                return made.lack
        return "no sandbox can be started: %s" % (error.strerror or error)

    def _refuse(self, connection, message, code="unavailable"):
        """
        Sends the refusal, then reads until the caller disconnects.

        Closing the connection with unread data would reset it, and a caller that is still writing would lose
        the answer.
        """
        _send(connection, {"ok": False, "code": code, "message": message})
        try:
            connection.shutdown(socket.SHUT_WR)
            kept = connection.dup()
        except OSError:
            return
        kept.setblocking(False)
        self._refused[kept.fileno()] = kept
        self._epoll.register(kept.fileno(), select.EPOLLIN)

    def _hear_refused(self, descriptor):
        connection = self._refused[descriptor]
        try:
            if connection.recv(_REFUSED_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        del self._refused[descriptor]
        self._epoll.unregister(descriptor)
        connection.close()

    def _accept_control(self):
        try:
            connection, _address = self._control_listener.accept()
        except OSError:
            return
        if len(self._controls) >= _MOST_CONTROL_CONNECTIONS or not self._is_service(connection):
            connection.close()
            return
        connection.settimeout(2)
        self._controls[connection.fileno()] = connection
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        self._retired = False
        _send(
            connection,
            {
                "pid": os.getpid(),
                "python": "%d.%d.%d" % sys.version_info[:3],
                "isolation": self._plan.layers.words(),
                "degraded": self._plan.layers.degraded + network_names.warnings(self._plan.networks),
                "privileged": layers.is_privileged(),
                # Reason why sandboxes cannot have a network with access to the outside; null when they can.
                "networkMissing": self._plan.networks.missing,
                # Directories of the sandboxes' groups. The server removes groups that this zygote may leave.
                "groupParents": self._group_parents(),
            },
        )

    def _serve_control(self, descriptor):
        connection = self._controls[descriptor]
        try:
            request = frames.read_message(connection, _LARGEST_REQUEST)
        except (OSError, frames.FrameError):
            request = None
        operation = None if request is None else request.get("op")
        if operation == "stats":
            _send(connection, self._stats())
            return
        if operation == "retire":
            # The server ends cleanly. Without instances this zygote ends now, and confirms it by closing the
            # connection.
            self._retired = len(self._controls) == 1
            if self._retired and not self._running:
                self._retire()
                return
        del self._controls[descriptor]
        self._epoll.unregister(descriptor)
        connection.close()
        self._idle_since = time.monotonic()
        if self._retired:
            self._retire()

    def _on_terminate(self, *_ignored):
        self._terminated = True

    def _stats(self):
        return {
            "pid": os.getpid(),
            "instances": len(self._running),
            "spares": sum(1 for one in self._workers.values() if one.pid is not None and one.is_ready),
            "making": sum(1 for one in self._workers.values() if one.pid is None),
        }

    # -- workers

    def _refill(self):
        if self._retired or self._failures >= _MOST_FAILURES:
            return
        ready = sum(1 for one in self._workers.values() if one.is_ready)
        if ready >= self._config["spares"]:
            return
        # Making a worker takes the machine's mount lock, which a start needs too. A start has priority as
        # long as a ready worker remains for the next one.
        if ready and ready < len(self._workers):
            return
        # The first moments of an instance have priority too, since they need the same processors.
        if 2 * ready >= self._config["spares"] and not waiting.is_over(self._refill_at):
            return
        # Makes one worker for each turn of the loop, so that a start does not wait for all of them.
        try:
            self._make_worker()
        except OSError:
            self._failures += 1
        if ready + 1 < self._config["spares"]:
            self._wake.nudge()

    def _make_worker(self, asked=None):
        self._counter += 1
        name = "%s-%d" % (self._prefix, self._counter)
        kind = (forking.OWN if self._plan.networks.always else forking.HOST) if asked is None else asked
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._forks.order(name, kind, theirs)
            except OSError:
                ours.close()
                raise
        made = _Worker(name, ours, asked)
        self._workers[ours.fileno()] = made
        self._epoll.register(ours.fileno(), select.EPOLLIN)
        return made

    def _hear_worker(self, one):
        message = _last_words(one.control)
        if message is None:
            self._forget_worker(one)
            return
        if "ready" in message:
            one.pid = message["ready"]
            one.drop_waiting()
            self._failures = 0
        elif "taken" in message:
            one.instance = message["taken"]
            one.drop_waiting()
            if one.is_reserved:
                one.is_reserved = False
                self._refill_at = time.monotonic() + _REFILL_SECONDS
            # If the instance has already ended and was reaped, its end would never be noticed later.
            if process.start_time(one.pid) is not None:
                self._running[one.pid] = one
        elif "failed" in message:
            self._failures += 1
            one.lack = message["failed"]
            _log(one.lack)
            # The worker waits for a connection that may be in transit, to refuse that start too.
            _give_up(one)

    def _forget_worker(self, one):
        """Removes a worker whose end of the pair is closed: it has become an instance, or has ended."""
        descriptor = one.control.fileno()
        self._epoll.unregister(descriptor)
        one.control.close()
        del self._workers[descriptor]
        if one.waiting is not None and one.lack is not None:
            self._refuse(one.waiting, one.lack)
        one.drop_waiting()
        if one.instance is None:
            if one.pid is None and not one.handed_over:
                self._failures += 1
            self._remove_worker(one.name)
        elif one.pid not in self._running:
            # The instance was reaped before its last message was read.
            self._end_instance(one)

    def _reap(self):
        # Reaps the programs that forward for networks (`user_network`).
        waiting.reap(lambda *_ignored: None)

    def _hear_forks(self):
        pid = self._forks.ended()
        if pid is None:
            # Workers end with this process, and instances continue. Another zygote replaces this one.
            _log("the fork server has ended")
            os._exit(1)
        self._has_ended(pid)

    def _has_ended(self, pid):
        for one in list(self._workers.values()):
            # The worker's last message is handled first.
            if one.pid == pid and one.instance is None:
                self._hear_worker(one)
        one = self._running.pop(pid, None)
        if one is not None:
            self._end_instance(one)

    def _end_instance(self, one):
        """
        Removes the groups of an ended instance whose start has failed.

        If its directory exists, the owner of that removes both.
        """
        if not os.path.exists(os.path.join(self._plan.instances, one.instance)):
            self._remove_groups(one.name)
        if not self._running:
            self._idle_since = time.monotonic()

    # -- residue on the machine

    def _remove_worker(self, name):
        # The worker removes its own directory, unless it was killed.
        shutil.rmtree(os.path.join(self._plan.workers, name), ignore_errors=True)
        self._remove_groups(name)

    def _sweep(self):
        """
        Removes the residue of killed zygotes: their files, and groups and directories of workers.

        The names contain the zygote's pid. This zygote has no workers yet.
        """
        for parent in self._group_parents() + [self._plan.workers]:
            for name in _names_in(parent):
                fields = name.split("-")
                if len(fields) < 3 or not _is_gone(fields[-2]):
                    continue
                path = os.path.join(parent, name)
                if parent == self._plan.workers:
                    shutil.rmtree(path, ignore_errors=True)
                elif os.path.isdir(path):
                    # A group with a living instance cannot be removed.
                    cgroups.remove([path])
        # Done last: a worker that still exists needs the files of its zygote.
        lockfile.sweep(self._config["runDir"], [self._plan.workers, self._plan.instances])

    def _group_parents(self):
        return sorted({place.parent for place in self._plan.layers.places.values()})

    def _remove_groups(self, name):
        paths = list(cgroups.paths_of(self._plan.layers.places, name).values())
        if paths and not cgroups.remove(paths):
            self._removals[name] = [paths, _REMOVE_TRIES]

    def _retry_removals(self):
        for name, entry in list(self._removals.items()):
            entry[1] -= 1
            if cgroups.remove(entry[0]) or entry[1] <= 0:
                del self._removals[name]

    # -- time and end

    def _time_left(self):
        if self._removals:
            return _REMOVE_RETRY_SECONDS
        if not waiting.is_over(self._refill_at):
            return max(0.0, self._refill_at - time.monotonic())
        if self._controls:
            return -1
        if self._running or self._retired:
            return _LOST_LOOK_SECONDS
        return max(0.0, self._idle_since + self._config["idleExitMs"] / 1000.0 - time.monotonic())

    def _is_done(self):
        if self._controls and not (self._retired and not self._running):
            return False
        if self._running or self._removals:
            return False
        if self._retired:
            return not self._workers
        return time.monotonic() >= self._idle_since + self._config["idleExitMs"] / 1000.0

    def _retire(self):
        """Abandons the workers, which end when their pair is closed."""
        self._retired = True
        for one in list(self._workers.values()):
            if not one.handed_over:
                _give_up(one)

    def _end_lost(self):
        """Ends all instances, because without the data directory no service finds them again."""
        if self._running:
            _log("the data directory was removed: its sandboxes end")
        for pid in list(self._running):
            for one in process.descendants(pid) + [pid]:
                process.kill(one)
        self._retire()

    def _refresh_etc(self):
        now = time.monotonic()
        if now - self._etc_checked >= _ETC_REFRESH_SECONDS:
            self._etc_checked = now
            self._plan.etc.refresh()

    def _close(self):
        for one in self._workers.values():
            one.control.close()
        self._forks.close()
        # Waits for the processes that the fork server has left. Unfinished workers notice only now that they
        # are not needed.
        waiting.until(lambda: not waiting.reap(lambda *_ignored: None), _END_SECONDS, _LOOK_SECONDS)
        for one in self._workers.values():
            self._remove_worker(one.name)
        # Their messages are not read any more.
        self._workers.clear()
        deadline = time.monotonic() + 2
        while self._removals and time.monotonic() < deadline:
            time.sleep(_REMOVE_RETRY_SECONDS)
            self._retry_removals()
        cgroups.remove_subtrees(self._plan.layers.places)
        for kind in ["control"] + list(_STARTS):
            try:
                os.unlink("%s.%s.sock" % (self._config["name"], kind), dir_fd=self._directory)
            except OSError:
                pass
        self._plan.etc.remove()
        self._plan.networks.release()
        self._lock.remove()
        # The server takes the closed connection for the end of the zygote.
        for connection in self._controls.values():
            connection.close()


def hand_over(control, connection):
    """
    Transfers a connection of the control plane to the worker at the other end, where `start.c` receives it.

    Raises OSError when that worker has ended.
    """
    control.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", connection.fileno()))])


def _last_words(control):
    """Returns the next message of a worker, or None when it has ended."""
    for _ in range(2):
        try:
            return forking.read_words(control.recv(forking.LARGEST_MESSAGE))
        except ConnectionResetError:
            # The worker has ended without reading a start. The kernel reports that first, and its message
            # afterwards.
            continue
        except OSError:
            break
    return None


def _give_up(one):
    """Transfers no more starts to this worker. A worker without one then ends."""
    one.handed_over = True
    one.control.shutdown(socket.SHUT_WR)


def _is_gone(pid):
    """
    Returns True if this field of a name is the pid of an ended zygote.

    An earlier zygote may have had the pid of this process.
    """
    # The owner of a supervised program (`shims.ts`) has eight digits, so it is no pid.
    if not pid.isdigit() or len(pid) > _LONGEST_PID:
        return False
    return int(pid) == os.getpid() or process.start_time(pid) is None


def _names_in(directory):
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        # Another service on this machine removes the shared subtree of groups when that is empty.
        return []


def _log(text):
    try:
        os.write(2, ("%s\n" % text).encode("utf-8", "replace"))
    except OSError:
        # The disk is full, which may be the subject of the message.
        pass


def _send(connection, message):
    try:
        frames.write_message(connection, message)
    except OSError:
        pass
