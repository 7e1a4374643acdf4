import { describe, expect, test, vi } from 'vitest';
import { type LeftBehind, type RunOptions, runServer, type Server, type StopReason } from './run-server.ts';

/** A server whose start and close end when the test says so. */
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
    logger: { info: log, error: log, fatal: log },
    print: line => void lines.push(line),
    tell: state => void told.push(state),
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
  test('says when it is ready, stops at a signal, and its last line says how many agents live on', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    await vi.waitFor(() => expect(run.lines).toEqual(['ready frontend=http://127.0.0.1:1 meta=http://127.0.0.1:2']));
    expect(run.server.close).not.toHaveBeenCalled();
    expect(run.told).toEqual(['READY=1']);
    run.signal();
    run.close.resolve({ agentsLeft: 3, jobsLeft: NO_JOBS });
    expect(await run.code).toBe(0);
    expect(run.server.close).toHaveBeenCalledExactlyOnceWith({ stopAgents: false, graceMs: 1000 });
    expect(run.lines[1]).toBe('stopped: 3 agents live on and are adopted at the next start');
    expect(run.told).toEqual(['READY=1', 'STOPPING=1']);
    expect(run.isListening()).toBe(false);
  });

  test.each([
    [0, 'stopped: no agent is left'],
    [1, 'stopped: 1 agent lives on and is adopted at the next start'],
  ])('with %i agents left the last line is %j', async (agentsLeft, line) => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    run.close.resolve({ agentsLeft, jobsLeft: NO_JOBS });
    await run.code;
    expect(run.lines.at(-1)).toBe(line);
  });

  test.each([
    [0, 1, 0, 'no agent is left; 1 job runs on and is adopted at the next start'],
    [0, 0, 1, 'no agent is left; 1 job waits and is taken up at the next start'],
    [
      2,
      3,
      4,
      '2 agents live on and are adopted at the next start; 3 jobs run on and are adopted at the next start; 4 jobs wait and are taken up at the next start',
    ],
  ])(
    'with %i agents, %i running and %i waiting jobs it says what becomes of them',
    async (agentsLeft, running, waiting, line) => {
      const run = setUp();
      run.start.resolve(URLS);
      run.signal();
      run.close.resolve({ agentsLeft, jobsLeft: { running, waiting } });
      await run.code;
      expect(run.lines.at(-1)).toBe(`stopped: ${line}`);
    },
  );

  test('when nobody could be asked for jobs, it says so', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: null });
    await run.code;
    expect(run.lines.at(-1)).toBe(
      'stopped: no agent is left; the database cannot be asked for jobs: those that there are go on at the next start',
    );
  });

  test('an entry that is switched off is a dash', async () => {
    const run = setUp();
    run.start.resolve({ frontendUrl: null, metaUrl: URLS.metaUrl });
    await vi.waitFor(() => expect(run.lines).toEqual(['ready frontend=- meta=http://127.0.0.1:2']));
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    await run.code;
  });

  test('stopAgents is passed on', async () => {
    const run = setUp({ stopAgents: true });
    run.start.resolve(URLS);
    run.signal('SIGINT');
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    await run.code;
    expect(run.server.close).toHaveBeenCalledWith({ stopAgents: true, graceMs: 1000 });
  });

  test('a second signal ends it at once, whatever close still waits for', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    await vi.waitFor(() => expect(run.server.close).toHaveBeenCalled());
    run.signal();
    expect(await run.code).toBe(1);
    expect(run.lines.at(-1)).toBe('stopped: at once; agents and jobs live on and are adopted at the next start');
  });

  test('a signal during the start closes what has begun, and it never says that it is ready', async () => {
    const run = setUp();
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    expect(await run.code).toBe(0);
    run.start.reject(new Error('closed'));
    expect(run.lines).toEqual(['stopped: no agent is left']);
  });

  test('a start that fails is closed and its error goes on', async () => {
    const run = setUp();
    run.start.reject(new Error('port is taken'));
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    await expect(run.code).rejects.toThrow('port is taken');
    expect(run.server.close).toHaveBeenCalledExactlyOnceWith({ stopAgents: false, graceMs: 0 });
    expect(run.lines).toEqual([]);
  });

  test('a fault that nobody caught is logged and counted, and the service goes on', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    await vi.waitFor(() => expect(run.lines).toHaveLength(1));
    for (const error of [new Error('boom'), undefined, 'a text', Object.create(null)]) run.fault(error);
    expect(run.server.uncaught).toHaveBeenCalledTimes(4);
    expect(run.logged).toEqual(Array(4).fill('a fault that nobody caught: the service goes on'));
    expect(run.server.close).not.toHaveBeenCalled();
    run.signal();
    run.close.resolve({ agentsLeft: 0, jobsLeft: NO_JOBS });
    expect(await run.code).toBe(0);
  });

  test('more than 100 faults in a minute stop it in order, with exit code 1; as many over a longer time do not', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const run = setUp();
      run.start.resolve(URLS);
      for (let count = 0; count < 200; count += 1) {
        run.fault(new Error('boom'));
        vi.advanceTimersByTime(601);
      }
      expect(run.logged).not.toContain('more than 100 faults that nobody caught in 60 s: the service stops');
      for (let count = 0; count < 300; count += 1) run.fault(new Error('boom'));
      run.close.resolve({ agentsLeft: 1, jobsLeft: NO_JOBS });
      expect(await run.code).toBe(1);
      expect(run.logged.at(-1)).toBe('more than 100 faults that nobody caught in 60 s: the service stops');
      expect(run.lines.at(-1)).toBe('stopped: 1 agent lives on and is adopted at the next start');
    } finally {
      vi.useRealTimers();
    }
  });

  test('a close that fails is reported: exit code 1', async () => {
    const run = setUp();
    run.start.resolve(URLS);
    run.signal();
    run.close.reject(new Error('disk'));
    expect(await run.code).toBe(1);
    expect(run.lines.at(-1)).toBe('stopped: closing failed, the log says why');
    expect(run.logged).toContain('closing failed');
  });

  test('a close that does not come back is given up at its deadline', async () => {
    vi.useFakeTimers();
    try {
      const run = setUp();
      run.start.resolve(URLS);
      run.signal();
      await vi.advanceTimersByTimeAsync(16_000);
      expect(await run.code).toBe(1);
      expect(run.lines.at(-1)).toBe('stopped: closing took longer than 16 s and was given up');
    } finally {
      vi.useRealTimers();
    }
  });
});
