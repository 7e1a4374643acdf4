import { describe, expect, test, vi } from 'vitest';
import { type LeftBehind, type RunOptions, runServer, type Server, type StopReason } from './run-server.ts';

/** Runs a server whose start and close the test completes. */
function setUp(overrides: Partial<RunOptions> = {}) {
  const start = deferred<{ frontendUrl: string | null; metaUrl: string | null }>();
  const close = deferred<LeftBehind>();
  const server = {
    start: vi.fn(() => start.promise),
    close: vi.fn(() => close.promise),
    uncaught: vi.fn(),
  } satisfies Server;
  const lines: string[] = [];
  const logged: string[] = [];
  const told: string[] = [];
  let listener: ((reason: StopReason) => void) | undefined;
  const log = (_: object, message: string): void => void logged.push(message);
  const code = runServer(server, {
    stopAgents: false,
    stopGraceMs: 1000,
    logger: { info: log, warn: log, error: log, fatal: log },
    print: line => void lines.push(line),
    notify: state => void told.push(state),
    onStop: given => {
      listener = given;
      return () => {
        listener = undefined;
      };
    },
    ...overrides,
  });
  return {
    start,
    close,
    server,
    lines,
    logged,
    told,
    code,
    signal: (name = 'SIGTERM') => listener?.({ kind: 'signal', name }),
    fault: (error: unknown) => listener?.({ kind: 'fault', error }),
    isListening: () => listener !== undefined,
  };
}

function deferred<T>() {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((onValue, onError) => {
    resolve = onValue;
    reject = onError;
  });
  return { promise, resolve, reject };
}

const NO_JOBS = { running: 0, waiting: 0 };
const URLS = { frontendUrl: 'http://127.0.0.1:1', metaUrl: 'http://127.0.0.1:2' };

describe('runServer', () => {
  test('runServer prints a ready line, stops at a signal, and prints how many agents continue', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    await vi.waitFor(() => expect(run.lines).toEqual(['ready frontend=http://127.0.0.1:1 meta=http://127.0.0.1:2']));
    expect(run.server.close).not.toHaveBeenCalled();
    expect(run.told).toEqual(['READY=1']);
    run.signal();
    run.close.resolve({ agentsLeft: 3, jobsLeft: NO_JOBS });
    expect(await run.code).toBe(0);
    expect(run.server.close).toHaveBeenCalledExactlyOnceWith({ stopAgents: false, graceMs: 1000 });
    expect(run.lines[1]).toBe(
      'stopped: 3 agents live on and are adopted at the next start; "rookery stop --all" ends everything of this machine',
    );
    expect(run.told).toEqual(['READY=1', 'STOPPING=1']);
    expect(run.isListening()).toBe(false);
  });

  test.each([
    [0, 'stopped: no agent is left'],
    [
      1,
      'stopped: 1 agent lives on and is adopted at the next start; "rookery stop --all" ends everything of this machine',
    ],
  ])('runServer with %i agents left prints %j as the last line', async (agentsLeft, line) => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    run.close.resolve({ agentsLeft, jobsLeft: NO_JOBS });
    await run.code;
    expect(run.lines.at(-1)).toBe(line);
  });

  test.each([
    [
      0,
      1,
      0,
      'no agent is left; 1 job runs on and is adopted at the next start; "rookery stop --all" ends everything of this machine',
    ],
    [0, 0, 1, 'no agent is left; 1 job waits and is taken up at the next start'],
    [
      2,
      3,
      4,
      '2 agents live on and are adopted at the next start; 3 jobs run on and are adopted at the next start; 4 jobs wait and are taken up at the next start; "rookery stop --all" ends everything of this machine',
    ],
  ])(
    'runServer with %i agents, %i running and %i waiting jobs prints which of them continue',
    async (agentsLeft, running, waiting, line) => {
      const run = setUp();
      run.start.resolve(URLS);
      run.signal();
      run.close.resolve({ agentsLeft, jobsLeft: { running, waiting } });
      await run.code;
      expect(run.lines.at(-1)).toBe(`stopped: ${line}`);
    },
  );

  test('runServer prints that the jobs are unknown when the database does not answer', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: null });
    await run.code;
    expect(run.lines.at(-1)).toBe(
      'stopped: no agent is left; the database cannot be read for jobs: existing jobs continue at the next start',
    );
  });

  test('runServer prints a dash for an entry that is switched off', async () => {
    const run = setUp();
    run.start.resolve({ frontendUrl: null, metaUrl: URLS.metaUrl });
    await vi.waitFor(() => expect(run.lines).toEqual(['ready frontend=- meta=http://127.0.0.1:2']));
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    await run.code;
  });

  test('runServer passes stopAgents to the server', async () => {
    const run = setUp({ stopAgents: true });
    run.start.resolve(URLS);
    run.signal('SIGINT');
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    await run.code;
    expect(run.server.close).toHaveBeenCalledWith({ stopAgents: true, graceMs: 1000 });
  });

  test('runServer ends at once at a second signal, while close is still pending', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    await vi.waitFor(() => expect(run.server.close).toHaveBeenCalled());
    run.signal();
    expect(await run.code).toBe(1);
    expect(run.lines.at(-1)).toBe('stopped: at once; agents and jobs live on and are adopted at the next start');
  });

  test('runServer closes the server without a ready line when a signal arrives during the start', async () => {
    const run = setUp();
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    expect(await run.code).toBe(0);
    run.start.reject(new Error('closed'));
    expect(run.lines).toEqual(['stopped: no agent is left']);
  });

  test('runServer closes the server and rejects with the error when the start fails', async () => {
    const run = setUp();
    run.start.reject(new Error('port is taken'));
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    await expect(run.code).rejects.toThrow('port is taken');
    expect(run.server.close).toHaveBeenCalledExactlyOnceWith({ stopAgents: false, graceMs: 0 });
    expect(run.lines).toEqual([]);
  });

  test('runServer logs and counts an uncaught fault, and continues', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    await vi.waitFor(() => expect(run.lines).toHaveLength(1));
    for (const error of [new Error('boom'), undefined, 'a text', Object.create(null)]) run.fault(error);
    expect(run.server.uncaught).toHaveBeenCalledTimes(4);
    expect(run.logged).toEqual(Array(4).fill('uncaught error; service continues'));
    expect(run.server.close).not.toHaveBeenCalled();
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    expect(await run.code).toBe(0);
  });

  test('runServer stops with exit code 1 after more than 100 faults in a minute, and continues below that rate', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const run = setUp();
      run.start.resolve(URLS);
      for (let count = 0; count < 200; count += 1) {
        run.fault(new Error('boom'));
        vi.advanceTimersByTime(601);
      }
      expect(run.logged).not.toContain('more than 100 uncaught errors in 60 s: the service stops');
      for (let count = 0; count < 300; count += 1) run.fault(new Error('boom'));
      run.close.resolve({ agentsLeft: 1, jobsLeft: NO_JOBS });
      expect(await run.code).toBe(1);
      expect(run.logged.at(-1)).toBe('more than 100 uncaught errors in 60 s: the service stops');
      expect(run.lines.at(-1)).toBe(
        'stopped: 1 agent lives on and is adopted at the next start; "rookery stop --all" ends everything of this machine',
      );
    } finally {
      vi.useRealTimers();
    }
  });

  test('runServer ends with exit code 1 when close fails', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    run.close.reject(new Error('disk'));
    expect(await run.code).toBe(1);
    expect(run.lines.at(-1)).toBe('stopped: closing failed, the log says why');
    expect(run.logged).toContain('closing failed');
  });

  test('runServer stops waiting for close at the deadline', async () => {
    vi.useFakeTimers();
    try {
      const run = setUp();
      run.start.resolve(URLS);
      run.signal();
      await vi.advanceTimersByTimeAsync(16_000);
      expect(await run.code).toBe(1);
      expect(run.lines.at(-1)).toBe('stopped: closing took longer than 16 s and was aborted');
    } finally {
      vi.useRealTimers();
    }
  });
});
