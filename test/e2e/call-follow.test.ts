import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Rookery } from '../../clients/typescript/src/index.ts';
import { ROOT } from '../../scripts/command.ts';
import { freePort } from '../parts/free-port.ts';
import { Bed } from './agents.ts';

const CODE = `
def handle(event, context):
    if event['n'] % 2:
        raise ValueError('odd')
    return event['n']
`;
const WAIT = { timeout: 90_000, interval: 50 };

describe('rookery calls --follow', { timeout: 240_000 }, () => {
  let bed: Bed;

  beforeAll(async () => {
    const port = String(await freePort());
    bed = await Bed.start({ 'code.py': CODE }, { args: ['--port', port], env: { ROOKERY_HISTORY_PER_SECOND: '1000' } });
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  /** Starts the command. `lines` grows with its output. */
  const follow = (...args: readonly string[]) => {
    const child = spawn(
      process.execPath,
      [join(ROOT, 'dist/main.js'), 'calls', '--follow', '--address', bed.server.frontendUrl, ...args],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    const lines: string[] = [];
    createInterface({ input: child.stdout }).on('line', line => lines.push(line));
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    const end = async (signal: NodeJS.Signals = 'SIGINT') => {
      const ended = once(child, 'exit');
      child.kill(signal);
      return (await ended) as [number | null, NodeJS.Signals | null];
    };
    return { lines, errors: () => errors, end };
  };
  const invoke = async (agent: string, n: number) => {
    await bed.invoke(agent, { n });
  };
  /** Calls the agent until the follower shows one, which shows that it has begun. */
  const begun = async (agent: string, lines: readonly string[]) => {
    await vi.waitFor(async () => {
      await invoke(agent, 0);
      expect(lines.length).toBeGreaterThan(0);
    }, WAIT);
  };
  const recorded = async (agent: string): Promise<readonly string[]> => {
    const { calls } = (await bed.ask('GET', `/api/calls?agent=${agent}&limit=1000`)).body;
    return (calls as readonly { id: string }[]).map(({ id }) => id).reverse();
  };

  test('each call appears once while the service restarts, and Ctrl-C ends with code 0', async () => {
    const agent = await bed.create('followed', 'code.handle');
    const other = await bed.create('other', 'code.handle');
    const follower = follow('--agent', agent, '--quiet');
    await begun(agent, follower.lines);
    const first = follower.lines[0] as string;
    for (let n = 0; n < 20; n++) await invoke(agent, n);
    await invoke(other, 2);
    await bed.server.end();
    await vi.waitFor(() => expect(follower.errors()).toContain('the service does not answer; waiting for it'), WAIT);
    await bed.disconnect();
    bed.server = await bed.server.next();
    for (let n = 0; n < 20; n++) await invoke(agent, n);
    await vi.waitFor(async () => {
      const ids = await recorded(agent);
      expect(ids.length).toBeGreaterThanOrEqual(41);
      expect([...follower.lines].sort()).toEqual(ids.slice(ids.indexOf(first)).sort());
    }, WAIT);
    expect(await follower.end()).toEqual([0, null]);
  });

  test('only calls that match the filters appear, with --after earlier ones first', async () => {
    const agent = await bed.create('filtered', 'code.handle');
    for (const n of [1, 2]) await invoke(agent, n);
    await vi.waitFor(async () => expect(await recorded(agent)).toHaveLength(2), WAIT);
    const follower = follow('--agent', agent, '--failed', '--json', '--after', '1h');
    await vi.waitFor(() => expect(follower.lines).toHaveLength(1), WAIT);
    for (const n of [4, 3]) await invoke(agent, n);
    await vi.waitFor(() => expect(follower.lines).toHaveLength(2), WAIT);
    const shown = follower.lines.map(line => JSON.parse(line) as { error: string; agent_id: string });
    for (const call of shown) expect(call).toMatchObject({ agent_id: agent, error: expect.stringContaining('odd') });
    expect(await follower.end('SIGTERM')).toEqual([0, null]);
  });

  test('a line for a person has the end, the id, the agent, the duration and the error', async () => {
    const agent = await bed.create('shown', 'code.handle');
    const follower = follow('--agent', agent, '--failed');
    await vi.waitFor(async () => {
      await invoke(agent, 1);
      expect(follower.lines[0]).toMatch(
        /^\d\d:\d\d:\d\d\.\d{3} {2}[0-9a-f-]{36} {2}e2e\/shown +\d.*s {2}4002 {2}.*odd/,
      );
    }, WAIT);
    expect(await follower.end()).toEqual([0, null]);
  });

  test('--before is refused, and a service that cannot be reached ends the command', async () => {
    const refused = follow('--before', '1h');
    await vi.waitFor(() => expect(refused.errors()).toContain('Give --follow or --before, not both.'), WAIT);
    const unreachable = follow('--address', 'http://127.0.0.1:1');
    await vi.waitFor(() => expect(unreachable.errors()).toContain('cannot be reached'), WAIT);
  });

  test('the iterator of the client continues after a crash of the service', async () => {
    using client = closing(new Rookery({ url: bed.server.frontendUrl }));
    const agent = await bed.create('iterated', 'code.handle');
    const over = new AbortController();
    const ids: string[] = [];
    const reading = (async () => {
      for await (const { id } of client.rookery.calls.follow({ agent, signal: over.signal })) ids.push(id);
    })();
    await begun(agent, ids);
    const first = ids[0] as string;
    await bed.disconnect();
    await bed.killAndRestart();
    for (let n = 0; n < 5; n++) await invoke(agent, n);
    await vi.waitFor(async () => {
      const known = await recorded(agent);
      expect(known.length).toBeGreaterThanOrEqual(6);
      expect([...ids].sort()).toEqual(known.slice(known.indexOf(first)).sort());
    }, WAIT);
    over.abort();
    await expect(reading).rejects.toMatchObject({ name: 'AbortError' });
  });
});

function closing(rookery: Rookery) {
  return { rookery, [Symbol.dispose]: () => rookery.close() };
}
