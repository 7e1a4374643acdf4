import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';

const MAIN = join(ROOT, 'dist/main.js');
const SIZE = { cpu: '500m', memory: '512Mi' };
const WAIT = { timeout: 60_000, interval: 200 };

let work: string;
let runtime: string;
let server: Served;
let app: string;
let apps = 0;

beforeAll(async () => {
  work = mkdtempSync(join(tmpdir(), 'rookery-deploy-'));
  runtime = `python${(await findInterpreters()).at(-1)?.version}`;
  // Like a remote service, it may read no directory of the caller.
  server = await Served.start({ args: [STOP_AGENTS, '--set', `mounts.allow=${work}/nothing`] });
}, 60_000);
afterAll(async () => {
  await server?.remove();
  rmSync(work, { recursive: true, force: true });
}, 60_000);
beforeEach(() => {
  app = join(work, `app${apps++}`);
});

const connection = () => ['--address', server.frontendUrl, '--meta-address', server.metaUrl];

function cli(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [MAIN, ...args], { encoding: 'utf8' }, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}
const deploy = (...args: string[]) => cli('deploy', '-f', join(app, 'rookery.yaml'), ...args, ...connection());
const diff = (...args: string[]) => cli('diff', '-f', join(app, 'rookery.yaml'), ...args, ...connection());
const edit = (file: string, from: string, to: string) =>
  writeFileSync(join(app, file), readFileSync(join(app, file), 'utf8').replaceAll(from, to));
const invoke = async (name: string) =>
  JSON.parse((await cli('agent', 'invoke', name, '{"name": "you"}', ...connection())).out);

async function start(): Promise<string> {
  expect(await cli('init', 'python', app)).toMatchObject({ code: 0 });
  const file = readFileSync(join(app, 'rookery.yaml'), 'utf8');
  writeFileSync(join(app, 'rookery.yaml'), file.replace(/runtime: .*/, `runtime: ${runtime}`));
  return `app${apps - 1}`;
}

describe('rookery deploy', () => {
  test('deploy creates missing parts, changes nothing the second time, and then replaces changed parts', async () => {
    const name = await start();
    expect(await diff('--exit-code')).toMatchObject({ code: 1, out: `agent default/${name}: to be created\n` });
    expect((await deploy('--dry-run')).out).toBe(`agent default/${name}: to be created\n`);
    expect(await deploy()).toMatchObject({ code: 0, out: expect.stringMatching(`^agent default/${name}: created: `) });
    expect(await invoke(name)).toMatchObject({ message: 'Hello, you!', calls: 1 });
    expect(await deploy()).toMatchObject({
      code: 0,
      out: `agent default/${name}: unchanged\nNothing has changed.\n`,
    });
    // The same instance answers.
    expect(await invoke(name)).toMatchObject({ calls: 2 });
    expect(await diff('--exit-code')).toMatchObject({ code: 0, out: expect.stringContaining('Nothing would change.') });

    edit('app.py', 'Hello', 'Goodbye');
    expect((await diff()).out).toBe(`agent default/${name}: to be replaced (code)\n`);
    expect((await deploy()).out).toMatch(`agent default/${name}: replaced (code): `);
    expect(await invoke(name)).toMatchObject({ message: 'Goodbye, you!', calls: 1 });
    edit('rookery.yaml', 'memory: 256', 'memory: 300');
    expect((await deploy()).out).toMatch(`agent default/${name}: replaced (memory): `);
  }, 120_000);

  test('deploy refuses the template of a compiled language that was not built', async () => {
    expect(await cli('init', 'go', app)).toMatchObject({ code: 0 });
    const refused = await deploy();
    expect(refused.code).not.toBe(0);
    expect(refused.err + refused.out).toContain(
      `${app} has no file to send: it is empty, or .rookeryignore leaves out`,
    );
  }, 60_000);

  test('deploy takes the schema of type hints, and a call that does not fit it is refused', async () => {
    await start();
    const name = `hinted${apps}`;
    const handle = 'def handle(event: Dict[str, int], context):\n    return sum(event.values())\n';
    writeFileSync(join(app, 'app.py'), `from typing import Dict\n\n\n${handle}`);
    const fn = { code: '.', runtime, handler: 'app.handle', inputSchema: 'hints', validateInput: true };
    writeFileSync(join(app, 'rookery.yaml'), JSON.stringify({ functions: { [name]: fn } }));
    const urn = `sn:cn:yrk:default:function:0@default@${name}:$latest`;
    expect(await deploy()).toMatchObject({ code: 0, out: `function 0@default@${name}: created: ${urn}\n` });
    expect(await deploy()).toMatchObject({ code: 0, out: expect.stringContaining('Nothing has changed.') });
    const call = (event: string) => cli('function', 'invoke', name, event, ...connection());
    expect(await call('{"a": 1, "b": 2}')).toMatchObject({ code: 0, out: '3\n' });
    const refused = await call('{"a": 1, "b": "2"}');
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('event.b: must be an integer, got "2"') });

    edit('app.py', 'Dict[str, int]', 'Dict[str, float]');
    expect((await diff()).out).toBe(`function 0@default@${name}: to be updated (codePath, inputSchema)\n`);
    edit('rookery.yaml', '"hints"', '"hint"');
    expect(await deploy()).toMatchObject({
      code: 2,
      err: expect.stringContaining(`functions.${name}.inputSchema must be a JSON Schema or "hints", got "hint"`),
    });
  }, 120_000);

  test('deploy creates the functions, jobs, schedules and pools of a file together', async () => {
    await start();
    writeFileSync(
      join(app, 'rookery.yaml'),
      JSON.stringify({
        pools: { small: { size: 1, resources: { requests: SIZE, limits: SIZE } } },
        functions: {
          [`f${apps}`]: { code: '.', runtime, handler: 'app.handle', env: { A: 'b' }, cpu: 500, memory: 256 },
        },
        jobs: {
          [`once${apps}`]: { command: 'cat app.py', code: '.' },
          [`nightly${apps}`]: { command: 'true', schedule: '0 3 * * *' },
        },
      }),
    );
    const first = await deploy();
    expect(
      first.out
        .split('\n')
        .slice(0, -1)
        .map(line => line.split(': ').slice(0, 2).join(': ')),
    ).toEqual([
      'pool small: created',
      `function 0@default@f${apps}: created`,
      `job once${apps}: created`,
      `job nightly${apps}: created`,
    ]);
    expect(first).toMatchObject({ code: 0, err: '' });
    expect((await deploy()).out).toContain('Nothing has changed.');
    edit('rookery.yaml', '"A":"b"', '"A":"c"');
    edit('rookery.yaml', '0 3', '0 4');
    edit('rookery.yaml', '"size":1', '"size":2');
    const { out } = await deploy();
    expect(out).toMatch(/pool small: updated \(size, max_size\)/);
    expect(out).toMatch(/function \S+: updated \(environment\)/);
    expect(out).toMatch(/job once\d+: unchanged/);
    expect(out).toMatch(/job nightly\d+: replaced \(cron\)/);
    expect((await deploy()).out).toContain('Nothing has changed.');
    edit('rookery.yaml', '0 4', '0 99');
    const wrong = await deploy();
    expect(wrong).toMatchObject({
      code: 1,
      out: expect.stringMatching(/nightly\d+: failed: the former schedule stays in force/),
    });
    edit('rookery.yaml', '0 99', '0 4');
    expect((await deploy()).out).toContain('Nothing has changed.');
    const called = await cli('function', 'invoke', `f${apps}`, '{}', ...connection());
    expect(JSON.parse(called.out)).toMatchObject({ message: 'Hello, world!' });
  }, 120_000);

  test('deploy reports a failed part, exits with 1 and still creates the other parts', async () => {
    await start();
    writeFileSync(
      join(app, 'rookery.yaml'),
      JSON.stringify({
        functions: { [`bad${apps}`]: { code: './nowhere', runtime, handler: 'app.handle' } },
        agents: { [`good${apps}`]: { code: '.', runtime, handler: 'app.handle' } },
      }),
    );
    const { code, out } = await deploy();
    expect(code).toBe(1);
    expect(out).toMatch(/function bad\d+: failed: code: the directory .*nowhere does not exist/);
    expect(out).toMatch(/agent default\/good\d+: created: /);
  }, 60_000);

  test('deploy reports missing secrets before it changes anything, also secrets of environments', async () => {
    const name = await start();
    const file = join(app, 'rookery.yaml');
    const refer = {
      secrets: [`named-${name}`],
      agents: { [name]: { code: '.', runtime, handler: 'app.handle', env: { KEY: { secret: `used-${name}` } } } },
    };
    writeFileSync(file, JSON.stringify(refer));
    const missing = `The secrets named-${name}, used-${name} must be there first: rookery secret set named-${name}`;
    expect((await diff()).err).toContain(missing);
    expect(await deploy()).toMatchObject({ code: 1, out: '', err: `${missing}\n` });
    for (const secret of [`named-${name}`, `used-${name}`]) {
      writeFileSync(join(work, 'value'), secret);
      expect(await cli('secret', 'set', secret, '--from-file', join(work, 'value'), ...connection())).toMatchObject({
        code: 0,
      });
    }
    expect((await deploy()).out).toMatch(`agent default/${name}: created: `);
    expect((await deploy()).out).toContain('Nothing has changed.');
    const seen = await cli('agent', 'exec', ...connection(), name, 'printenv', 'KEY');
    expect(seen).toEqual({ code: 0, out: `used-${name}\n`, err: '' });
  }, 120_000);

  test('deploy reports every mistake of the file at once and changes nothing', async () => {
    await start();
    writeFileSync(
      join(app, 'rookery.yaml'),
      'agents:\n  a:\n    code: .\n    runtim: python3\n    cpu: many\nagent: {}\n',
    );
    const { code, out, err } = await deploy();
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain('agents.a.runtime is required');
    expect(err).toContain('agents.a.cpu must be');
    expect(err).toContain('agents.a: unknown field runtim is not known; did you mean runtime?');
    expect(err).toContain('unknown field agent is not known; did you mean agents?');
  });

  test('deploy --watch deploys each change of the code until Ctrl-C', async () => {
    const name = await start();
    const child = spawn(process.execPath, [
      ...[MAIN, 'deploy', '--watch', '-f', join(app, 'rookery.yaml')],
      ...connection(),
    ]);
    let out = '';
    child.stdout.on('data', chunk => {
      out += chunk;
    });
    let err = '';
    child.stderr.on('data', chunk => {
      err += chunk;
    });
    try {
      await vi.waitFor(() => expect(err).toContain('Watching'), WAIT);
      edit('app.py', 'Hello', 'Changed');
      await vi.waitFor(() => expect(out).toContain(`agent default/${name}: replaced (code)`), WAIT);
      expect(await invoke(name)).toMatchObject({ message: 'Changed, you!' });
    } finally {
      child.kill('SIGINT');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    }
  }, 120_000);
});

describe('rookery init', () => {
  test('init never overwrites files, and its http template runs', async () => {
    expect(await cli('init', 'http', app)).toMatchObject({ code: 0 });
    expect(await cli('init', 'python', app)).toMatchObject({
      code: 2,
      err: expect.stringContaining('already exists'),
    });
    expect(await deploy()).toMatchObject({ code: 0 });
    expect(await invoke(`app${apps - 1}`)).toEqual({ message: 'Hello, you!' });
  }, 60_000);

  test('the TypeScript template of init runs', async () => {
    expect(await cli('init', 'typescript', app)).toMatchObject({ code: 0 });
    expect(await deploy()).toMatchObject({ code: 0 });
    expect(await invoke(`app${apps - 1}`)).toEqual({ message: 'Hello, you!', calls: 1 });
  }, 60_000);

  describeWith(['go'], 'rookery init with Go', () => {
    test('the Go template of init runs', async () => {
      const { err } = await cli('init', 'go', app);
      const build = /CGO_ENABLED=0 .*/.exec(err)?.[0] ?? 'false';
      execFileSync('sh', ['-c', build], { cwd: app, stdio: 'ignore' });
      expect(await deploy()).toMatchObject({ code: 0 });
      expect(await invoke(`app${apps - 1}`)).toEqual({ message: 'Hello, you!' });
    }, 120_000);
  });
});
