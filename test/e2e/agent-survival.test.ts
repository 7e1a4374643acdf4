import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Bed } from './agents.ts';

const COUNTER = `
import time
n = 0
def count(event, context):
    global n
    n += 1
    return n
def sleep(event, context):
    time.sleep(event)
    return "slept"
`;

describe('the server is killed with -9', () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ 'counter.py': COUNTER });
  });
  afterAll(() => bed?.[Symbol.asyncDispose]());

  it('100 live agents: all serve again with what their handlers kept; running calls failed at once', async () => {
    const ids = await Promise.all(Array.from({ length: 100 }, (_, index) => bed.create(`s${index}`, 'counter.count')));
    await Promise.all(ids.map(id => bed.invoke(id)));
    const sleeper = await bed.create('sleeper', 'counter.sleep');
    const running = bed.invoke(sleeper, 600);
    running.catch(() => undefined);
    await bed.killAndRestart();
    await expect(running).rejects.toThrow();
    const answers = await Promise.all(ids.map(id => bed.invoke(id)));
    expect(answers.map(({ body }) => body.data)).toEqual(ids.map(() => 2));
    // The call that the old server was waiting for was cancelled: the instance is free.
    expect((await bed.invoke(sleeper, 0)).body.data).toBe('slept');
  });

  it('an agent that died meanwhile is FAILED with the reason', async () => {
    const id = await bed.create('victim', 'counter.count');
    const { body } = await bed.ask('GET', `/api/agent/${id}`);
    const pid = Number((body.instance as { sandbox_id: string }).sandbox_id);
    await bed.server.end('SIGKILL');
    process.kill(pid, 'SIGKILL');
    bed.server = await bed.server.next();
    const after = (await bed.ask('GET', `/api/agent/${id}`)).body.instance;
    expect(after).toMatchObject({ status: 'FAILED', status_reason: expect.stringContaining('exited') });
    expect(await bed.invoke(id)).toMatchObject({ status: 404, body: { message: `instance not found: ${id}` } });
    // It holds its name until it is deleted.
    expect((await bed.ask('POST', '/api/agent', bed.createBody('victim', 'counter.count'))).status).toBe(409);
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    await bed.create('victim', 'counter.count');
  });
});

describe('creating and deleting', () => {
  it('1000 times leaves no process, mount, control group, file or descriptor more than before', async () => {
    await using bed = await Bed.start({ 'counter.py': COUNTER });
    const rounds = async (count: number) => {
      for (let done = 0; done < count; done += 20) {
        const ids = await Promise.all(
          Array.from({ length: 20 }, (_, index) => bed.create(`c${index}`, 'counter.count')),
        );
        await Promise.all(ids.map(id => bed.invoke(id)));
        await Promise.all(ids.map(id => bed.ask('DELETE', `/api/agent/${id}`)));
      }
    };
    await rounds(100);
    const before = await settled(bed);
    await rounds(900);
    expect(await settled(bed, before)).toEqual(before);
  }, 180_000);
});

interface Footprint {
  readonly processes: number;
  readonly mounts: number;
  readonly groups: number;
  readonly files: number;
  readonly descriptors: number;
}

function footprint(bed: Bed): Footprint {
  const { pid, dataDir } = bed.server;
  return {
    processes: ownProcesses(dataDir),
    mounts: readFileSync('/proc/self/mounts', 'utf8').split('\n').length,
    groups: groupsOf('/sys/fs/cgroup'),
    files: readdirSync(dataDir, { recursive: true }).length,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

/** Spares are made again and keep-alive connections end in their own time: waits, bounded, until `wanted` or until nothing changes. */
async function settled(bed: Bed, wanted?: Footprint): Promise<Footprint> {
  await bed.disconnect();
  let last = footprint(bed);
  for (let calm = 0, looks = 0; calm < 5 && looks < 200; looks++) {
    if (wanted && JSON.stringify(last) === JSON.stringify(wanted)) return last;
    await bed.disconnect();
    await new Promise(resolve => setTimeout(resolve, 50));
    const now = footprint(bed);
    calm = !wanted && JSON.stringify(now) === JSON.stringify(last) ? calm + 1 : 0;
    last = now;
  }
  return last;
}

/** Processes of this server's launchers: they are in its data directory's run files by name, so count those of our own titles. */
function ownProcesses(dataDir: string): number {
  const launchers = new Set<string>();
  const children = new Map<string, string[]>();
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
      children.set(parent, [...(children.get(parent) ?? []), pid]);
      if (readFileSync(`/proc/${pid}/environ`, 'utf8').includes(dataDir)) launchers.add(pid);
      if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(dataDir)) launchers.add(pid);
    } catch {
      // It ended while it was looked at.
    }
  }
  const counted = new Set<string>();
  const count = (pid: string) => {
    if (counted.has(pid)) return;
    counted.add(pid);
    for (const child of children.get(pid) ?? []) count(child);
  };
  for (const pid of launchers) count(pid);
  return counted.size;
}

function groupsOf(root: string): number {
  try {
    return readdirSync(root, { recursive: true, withFileTypes: true }).filter(
      entry => entry.isDirectory() && entry.parentPath.includes('rookery'),
    ).length;
  } catch {
    return 0;
  }
}
