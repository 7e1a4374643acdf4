import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';

/** A process of Rookery on this machine, found without any data directory. */
export interface MachineProcess {
  readonly pid: number;
  readonly kind: 'service' | 'zygote' | 'sandbox' | 'supervised';
  /** The id of the instance; `''` for services and zygotes. */
  readonly instanceId: string;
  /** The data directory for which the process works; null: unknown. */
  readonly dataDir: string | null;
  /** True when that directory was removed. A service of another directory never finds the process. */
  readonly isLost: boolean;
}

interface Seen {
  readonly pid: number;
  readonly parent: number;
  readonly argv: readonly string[];
}

const TITLES = [
  ['zygote', 'rookery: zygote '],
  ['sandbox', 'rookery: init '],
  ['supervised', 'rookery: supervised '],
] as const;
const DELETED = ' (deleted)';

/**
 * Lists every process of Rookery that this user can see below `/proc`.
 * Processes inside a sandbox are left out, whatever their titles are.
 */
export async function findProcesses(proc = '/proc'): Promise<readonly MachineProcess[]> {
  const all = new Map((await seenIn(proc)).map(one => [one.pid, one]));
  const kinds = new Map([...all.values()].map(one => [one.pid, kindOf(one)]));
  const isInside = ({ parent }: Seen): boolean => {
    const above = all.get(parent);
    return above !== undefined && (kinds.get(parent)?.kind === 'sandbox' || isInside(above));
  };
  const found: MachineProcess[] = [];
  const places = new Map<number, Place>();
  for (const one of all.values()) {
    const known = kinds.get(one.pid);
    if (known == null || isInside(one)) continue;
    const holder = known.kind === 'sandbox' ? ownerOf(one, all, kinds) : one.pid;
    if (!places.has(holder)) places.set(holder, await placeOf(proc, holder));
    found.push({ pid: one.pid, ...known, ...(places.get(holder) as Place) });
  }
  return found;
}

/** Returns the pids of a process and all its descendants, the lowest first. */
export async function treeOf(pid: number, proc = '/proc'): Promise<readonly number[]> {
  const seen = await seenIn(proc);
  const below = (of: number): number[] =>
    seen.filter(({ parent }) => parent === of).flatMap(child => [...below(child.pid), child.pid]);
  return [...below(pid), pid];
}

type Place = Pick<MachineProcess, 'dataDir' | 'isLost'>;

/**
 * Returns the pid of the zygote or supervised program that made a sandbox.
 * When that has ended, returns the sandbox's own pid.
 */
function ownerOf(
  one: Seen,
  all: ReadonlyMap<number, Seen>,
  kinds: ReadonlyMap<number, ReturnType<typeof kindOf>>,
): number {
  for (let above = all.get(one.parent); above !== undefined; above = all.get(above.parent)) {
    if (kinds.get(above.pid) != null) return above.pid;
  }
  return one.pid;
}

function kindOf({ argv }: Seen): Pick<MachineProcess, 'kind' | 'instanceId'> | null {
  const [title = '', program = '', command] = argv;
  for (const [kind, beginning] of TITLES) {
    if (title.startsWith(beginning))
      return { kind, instanceId: kind === 'zygote' ? '' : title.slice(beginning.length) };
  }
  const isService = /(^|\/)node$/.test(title) && /(^|\/)(main\.js|rookery)$/.test(program) && command === 'serve';
  return isService ? { kind: 'service', instanceId: '' } : null;
}

/**
 * Finds the data directory of a process.
 * Each process keeps the directory `run`, one below it, or the lock of the data directory open.
 */
async function placeOf(proc: string, pid: number): Promise<Place> {
  const directory = join(proc, String(pid), 'fd');
  for (const name of await readdir(directory).catch(() => [])) {
    const target = await readlink(join(directory, name)).catch(() => '');
    const isLost = target.endsWith(DELETED);
    const path = isLost ? target.slice(0, -DELETED.length) : target;
    const dataDir = /^(\/.*)\/(?:run(?:\/instances)?|lock)$/.exec(path)?.[1];
    if (dataDir !== undefined) return { dataDir, isLost };
  }
  return { dataDir: null, isLost: false };
}

async function seenIn(proc: string): Promise<readonly Seen[]> {
  const names = (await readdir(proc)).filter(name => /^\d+$/.test(name));
  const seen = await Promise.all(
    names.map(async name => {
      try {
        const [stat, line] = await Promise.all([
          readFile(join(proc, name, 'stat'), 'utf8'),
          readFile(join(proc, name, 'cmdline'), 'utf8'),
        ]);
        const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        if (state === 'Z') return null;
        return { pid: Number(name), parent: Number(parent), argv: line.split('\0').map(word => word.trimEnd()) };
      } catch {
        // The process has ended meanwhile.
        return null;
      }
    }),
  );
  return seen.filter(one => one !== null);
}
