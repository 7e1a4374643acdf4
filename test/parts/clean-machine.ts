import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { KEPT_DIR } from './kept.ts';
import { withMachineLock } from './machine-lock.ts';

const execute = promisify(execFile);

const KEPT = join(KEPT_DIR, 'rookery-test-images');
const MIRROR = 'http://deb.debian.org/debian';
const SUITE = 'bookworm';
const INCLUDED = 'python3,systemd,curl';
/** Kept root file system. Different content needs a different number in the name. */
const ROOT = join(KEPT, `clean-${SUITE}-2`);
export const CLEAN_ROOT_MAKE_MS = 300_000;
const RUN_TIMEOUT_S = 500;
const OUTPUT_POLL_MS = 20;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/**
 * Returns a read-only directory with Debian 12 as its installer leaves it, with Python, systemd and curl,
 * without Node.
 */
export async function cleanRoot(): Promise<string> {
  if (existsSync(ROOT)) return ROOT;
  await withMachineLock('image-clean-root', CLEAN_ROOT_MAKE_MS, async () => {
    if (existsSync(ROOT)) return;
    await mkdir(KEPT, { recursive: true });
    const making = await mkdtemp(join(KEPT, 'making-'));
    try {
      const args = ['--variant=minbase', `--include=${INCLUDED}`, SUITE, join(making, 'root'), MIRROR];
      await execute('debootstrap', args, { timeout: CLEAN_ROOT_MAKE_MS, maxBuffer: MAX_OUTPUT_BYTES });
      await rename(join(making, 'root'), ROOT);
    } finally {
      await rm(making, { recursive: true, force: true });
    }
  });
  return ROOT;
}

export interface Visit {
  /** Files of this machine that are mounted read-only: target → source. */
  readonly brought: Readonly<Record<string, string>>;
  /** The init of the machine: the script itself, or systemd, which runs the script as its last service. */
  readonly init: 'script' | 'systemd';
  /** A Bash script, which stops at its first failing command. */
  readonly script: string;
  /** `outward`: the network of this machine through slirp4netns; default: loopback only. */
  readonly network?: 'loopback' | 'outward';
  /** Receives the output while the script runs. */
  readonly onOutput?: (text: string) => void;
  /** Limit in seconds; default: 500. */
  readonly timeoutS?: number;
}

/**
 * Runs a script on a new machine with its own file system, processes, network and control groups. Returns the
 * output, or fails with it when the script fails. The machine leaves no residue: processes end with its init,
 * and mounts with its processes.
 */
export async function onCleanMachine(visit: Visit): Promise<string> {
  const { brought, init, script, network = 'loopback', onOutput, timeoutS = RUN_TIMEOUT_S } = visit;
  const lower = await cleanRoot();
  const directory = await mkdtemp(join(tmpdir(), 'rookery-clean-'));
  try {
    for (const name of ['upper', 'work', 'root', 'groups']) await mkdir(join(directory, name));
    // Users of the machine must be able to traverse its root directory.
    await chmod(join(directory, 'upper'), 0o755);
    const binds = Object.entries(brought).map(([target, source]) => bind(source, `"$d/root${target}"`));
    await writeFile(join(directory, 'outer.sh'), OUTER);
    await writeFile(join(directory, 'inner.sh'), innerScript(lower, binds, init));
    await writeFile(join(directory, 'visit.sh'), `set -euo pipefail\n${script}\n`);
    const args = [
      '--mount',
      '--propagation',
      'private',
      'sh',
      join(directory, 'outer.sh'),
      directory,
      `${timeoutS}`,
      network,
    ];
    const stopReading = onOutput === undefined ? null : followFile(join(directory, 'upper/visit.out'), onOutput);
    const failure = await execute('unshare', args, { env: ENVIRONMENT, maxBuffer: MAX_OUTPUT_BYTES }).then(
      () => null,
      (error: Error) => error.message,
    );
    stopReading?.();
    const output = await readFile(join(directory, 'upper/visit.out'), 'utf8').catch(() => '');
    if (failure !== null) throw new Error(`the clean machine failed: ${failure}\n${output}`);
    return output;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Passes the growing content of a file to `onText`. The returned function passes the rest and stops. */
function followFile(file: string, onText: (text: string) => void): () => void {
  const decoder = new TextDecoder();
  let offset = 0;
  const read = () => {
    if (!existsSync(file)) return;
    const content = readFileSync(file).subarray(offset);
    offset += content.length;
    if (content.length > 0) onText(decoder.decode(content, { stream: true }));
  };
  const timer = setInterval(read, OUTPUT_POLL_MS);
  return () => {
    clearInterval(timer);
    read();
  };
}

const ENVIRONMENT = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/root' };

/**
 * Script that puts the machine's control groups below one of ours, so that they can be removed. A systemd
 * needs its own hierarchy or the unified one.
 */
const OUTER = `
set -eu
d=$1
enter='unshare --net' name=$(basename "$d") helper=
if [ "$3" = outward ]; then
  ip netns add "$name"
  # Outside of the control group, whose root belongs to the machine's init.
  slirp4netns --netns-type=path --configure --disable-host-loopback --ready-fd=3 "/run/netns/$name" tap0 3>"$d/ready" >/dev/null 2>&1 & helper=$!
  enter="ip netns exec $name unshare"
  until [ -s "$d/ready" ]; do kill -0 "$helper"; sleep 0.02; done
fi
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 "$d/groups"
  before=$(sed -n 's/^0:://p' /proc/self/cgroup)
else
  mount -t cgroup -o none,name=systemd systemd "$d/groups"
  before=$(sed -n 's/^[0-9]*:name=systemd://p' /proc/self/cgroup)
fi
group=$d/groups/$(basename "$d")
mkdir "$group"
others=
# The other hierarchies of version 1, which systemd mounts by itself.
for hierarchy in /sys/fs/cgroup/*/; do
  other=$hierarchy$(basename "$d")
  [ -e "$hierarchy/cgroup.procs" ] && [ ! "$hierarchy" -ef "$d/groups" ] && [ ! -e "$hierarchy/cpuset.cpus" ] || continue
  mkdir "$other" && others="$others $other"
  echo $$ >"$other/cgroup.procs"
done
leave() {
  [ -z "$helper" ] || { kill "$helper"; wait "$helper" || true; ip netns delete "$name"; }
  echo $$ >"$d/groups$before/cgroup.procs"
  for other in $others; do echo $$ >"$(dirname "$other")/cgroup.procs"; done
  find "$group" $others -depth -type d -exec rmdir {} ";"
}
trap leave EXIT
echo $$ >"$group/cgroup.procs"
timeout --kill-after=5 "$2" $enter --mount --pid --uts --ipc --cgroup --fork --kill-child sh "$d/inner.sh" "$d"
`;

function innerScript(lower: string, binds: readonly string[], init: Visit['init']): string {
  return `
set -eu
d=$1
mount -t overlay overlay -o "lowerdir=${lower},upperdir=$d/upper,workdir=$d/work" "$d/root"
mount -t proc proc "$d/root/proc"
mount -t sysfs sysfs "$d/root/sys"
mount --rbind /dev "$d/root/dev"
mount -t tmpfs tmpfs "$d/root/run"
ip link set lo up
# The resolver of slirp4netns.
! ip link show tap0 >/dev/null 2>&1 || echo 'nameserver 10.0.2.3' >"$d/root/etc/resolv.conf"
${binds.join('\n')}
cp "$d/visit.sh" "$d/root/visit.sh"
${init === 'systemd' ? SYSTEMD : ''}
cd "$d/root"
# Not chroot, in which the kernel lets nobody have a user namespace.
pivot_root . mnt
exec chroot . /bin/bash -c 'cd /; umount -l /mnt; ${init === 'systemd' ? BOOT : 'exec bash /visit.sh >/visit.out 2>&1'}'
`;
}

/** Script that runs the visit as a systemd service, whose end ends the machine with its exit code. */
const SYSTEMD = `
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 "$d/root/sys/fs/cgroup"
else
  mount -t tmpfs tmpfs "$d/root/sys/fs/cgroup"
  mkdir "$d/root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd systemd "$d/root/sys/fs/cgroup/systemd"
fi
cat >"$d/root/etc/systemd/system/visit.service" <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/bin/sh -c 'bash /visit.sh >/visit.out 2>&1; systemctl exit $?'
UNIT
mkdir -p "$d/root/etc/systemd/system/multi-user.target.wants"
ln -s ../visit.service "$d/root/etc/systemd/system/multi-user.target.wants/visit.service"
`;
const BOOT = 'export container=other; exec /lib/systemd/systemd --log-target=null --unit=multi-user.target';

/** Returns a command that bind-mounts `source` onto a file or directory created for it. */
function bind(source: string, target: string): string {
  return `if [ -d '${source}' ]; then mkdir -p ${target}; else mkdir -p "$(dirname ${target})"; touch ${target}; fi
mount --bind '${source}' ${target}`;
}
