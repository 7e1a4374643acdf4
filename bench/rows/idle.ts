import { spawn } from 'node:child_process';
import { type Bed, type BenchRow, NotHere } from '../bed.ts';
import { atMost, delay, type Measurement } from '../measure.ts';
import { cpuSeconds, familyOf, parentOf, privateMb } from '../processes.ts';
import type { Rookery } from '../rookery.ts';

const EVENT = { name: 'Ada' };
/** Program without imports beside `sys`, because the bench's handler imports nothing. */
const BARE = 'import sys; print("ready", flush=True); sys.stdin.read()';

/** Returns the processes of an agent: its sandbox and all descendants. */
async function processesOf(rookery: Rookery, id: string): Promise<ReadonlySet<number>> {
  const { sandbox_id: sandboxId } = await rookery.get(id);
  const pid = Number(sandboxId);
  if (!Number.isInteger(pid) || pid <= 1) throw new NotHere(`the sandbox id ${String(sandboxId)} is not a process id`);
  return familyOf([pid]);
}

async function bareInterpreterMb(python: string): Promise<number> {
  const child = spawn(python, ['-c', BARE], { stdio: ['pipe', 'pipe', 'inherit'] });
  try {
    await new Promise((resolve, reject) => {
      child.stdout.once('data', resolve);
      child.once('error', reject);
    });
    return privateMb([child.pid ?? 0]);
  } finally {
    child.kill('SIGKILL');
  }
}

/** Returns true from Python 3.12 on, where reference counts do not write to pages of shared objects. */
function hasImmortalObjects(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > 3 || (major === 3 && minor >= 12);
}

/** Measures the private memory of an agent that has answered one call. */
export const idleMemory: BenchRow = {
  name: 'idle-memory',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const count = 20;
    const ids = await rookery.createMany(count);
    let total = 0;
    for (const id of ids) {
      await rookery.invoke(id, EVENT);
      total += privateMb(await processesOf(rookery, id));
    }
    await rookery.deleteAll(ids);
    const bare = await bareInterpreterMb(bed.python.path);
    bed.raw['idle-memory'] = { perAgentMb: total / count, bareInterpreterMb: bare };
    return [
      {
        what: 'an idle agent, private memory of all its processes',
        value: total / count,
        unit: 'MB',
        against: { what: 'a bare interpreter that imported as much', value: bare },
        target: atMost('value', hasImmortalObjects(bed.python.version) ? 2.3 : 4),
      },
      { what: 'the same, above that interpreter', value: total / count - bare, unit: 'MB' },
    ];
  },
};

/** Measures the processor time of 200 idle agents over ten seconds, including the server and the zygotes. */
export const idleCpu: BenchRow = {
  name: 'idle-cpu',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const count = bed.isQuick ? 50 : 200;
    const windowMs = bed.isQuick ? 3000 : 10_000;
    const ids = await rookery.createMany(count);
    const agents = new Set<number>();
    const zygotes = new Set<number>();
    for (const id of ids) {
      for (const pid of await processesOf(rookery, id)) agents.add(pid);
      const [sandbox] = await processesOf(rookery, id);
      const zygote = parentOf(sandbox ?? 0);
      if (zygote > 1) zygotes.add(zygote);
    }
    await delay(2000); // creates and calls have ended, and workers are prepared again
    const all = new Set([...agents, ...zygotes]);
    const serverPid = [rookery.served.pid];
    const before = [cpuSeconds(all), cpuSeconds(serverPid)] as const;
    await delay(windowMs);
    const used = [cpuSeconds(all) - before[0], cpuSeconds(serverPid) - before[1]] as const;
    await rookery.deleteAll(ids);
    bed.raw['idle-cpu'] = { count, windowMs, agentsAndZygotesSeconds: used[0], serverSeconds: used[1] };
    return [
      {
        what: `${count} idle agents, their zygotes and the server, share of one core`,
        value: ((used[0] + used[1]) / (windowMs / 1000)) * 100,
        unit: '%',
        target: atMost('value', 1),
      },
    ];
  },
};
