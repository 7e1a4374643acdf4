/**
 * Shows that an agent survives a kill of the service: `npm run demo`.
 * It builds Rookery, starts it on free ports, creates an agent from examples/hello, and calls it. Then it
 * kills the server with SIGKILL and calls the same agent through a new one. At the end it removes everything
 * that it started.
 */
import { join } from 'node:path';
import { request } from 'undici';
import { ROOT, run } from './command.ts';
import { findInterpreters } from './pythons.ts';
import { Served } from './served.ts';

const CODE = join(ROOT, 'examples/hello');

function say(text = ''): void {
  console.log(text);
}

/** Sends one request, and prints it with its answer and duration. Throws if the status is not 200. */
async function show(method: 'GET' | 'POST', url: string, body?: unknown): Promise<{ body: Record<string, unknown> }> {
  const startedAt = performance.now();
  const response = await request(url, {
    method,
    ...(body === undefined
      ? {}
      : { headers: { 'content-type': 'application/json' }, body: Buffer.from(JSON.stringify(body)) }),
  });
  const text = await response.body.text();
  const tookMs = performance.now() - startedAt;
  say(`  ${method} ${new URL(url).pathname}${body === undefined ? '' : `  ${JSON.stringify(body)}`}`);
  const { warnings, ...answer } = JSON.parse(text) as { readonly warnings?: readonly string[] };
  say(`  → ${response.statusCode}  ${JSON.stringify(answer)}  (${tookMs.toFixed(1)} ms)`);
  if (warnings !== undefined) say(`    and ${warnings.length} warnings, which "node dist/main.js doctor" explains`);
  if (response.statusCode !== 200) throw new Error('the demo expected status 200');
  return { body: answer };
}

/** Creates an agent of the example. Returns its id. */
async function create(server: Served, name: string, pythonVersion: string): Promise<string> {
  const { body } = await show('POST', `${server.frontendUrl}/api/agent`, {
    namespace: 'demo',
    name,
    mounts: [{ source: CODE, target: '/code', readonly: true }],
    runtime_spec: {
      runtime: `python${pythonVersion}`,
      codePath: '/code',
      handler: 'handler.handle',
      extendedHandler: { initializer: 'handler.initialize' },
      rootfs: { imageurl: 'host' },
    },
  });
  return String(body.instance_id);
}

async function demo(): Promise<void> {
  const python = (await findInterpreters()).at(-1);
  if (python === undefined) {
    throw new Error('the demo needs Python 3.6 or newer, and none was found (Debian: apt-get install python3)');
  }

  say('Building …');
  const build = await run(process.execPath, ['--import', 'tsx', 'scripts/build.ts'], { capture: true });
  if (build.code !== 0) throw new Error(`the build failed:\n${build.output}`);

  // `process.warm` starts the zygote with the service. Otherwise the first create waits for it.
  let server = await Served.start({ args: ['--set', `process.warm=${python.version}`] });
  // Ctrl-C also ends the server, but its agent would continue. So the demo removes both.
  process.once('SIGINT', () => void server.remove().finally(() => process.exit(130)));
  try {
    say(`Rookery serves at ${server.frontendUrl} (its data is in ${server.dataDir}).`);
    say();
    say(`1. Create an agent from examples/hello, on Python ${python.version}:`);
    const id = await create(server, 'hello', python.version);
    const path = `/api/agent/${id}/invoke`;

    say();
    say('2. Call it. It stays alive between calls, and so does what it keeps in memory:');
    await show('POST', `${server.frontendUrl}${path}`, { name: 'Ada' });
    await show('POST', `${server.frontendUrl}${path}`, { name: 'Grace' });

    say();
    say(`3. Kill the server (kill -9 ${server.pid}) and start another one. The agent never noticed:`);
    await server.end('SIGKILL');
    const restartedAt = performance.now();
    server = await server.next();
    say(`  ready again after ${Math.round(performance.now() - restartedAt)} ms`);
    await show('POST', `${server.frontendUrl}${path}`, { name: 'Edsger' });
  } finally {
    say();
    say('Ending the server and its agent …');
    await server.remove();
  }
  say('Nothing is left running. To do it yourself, in one terminal:');
  say();
  say('  node dist/main.js serve');
  say();
  say('and in another one:');
  say();
  say('  node dist/main.js agent create hello --code ./examples/hello --handler handler.handle');
  say(`  node dist/main.js agent invoke hello '{"name": "Ada"}'`);
  say();
  say('README.md goes on from here.');
}

try {
  await demo();
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
