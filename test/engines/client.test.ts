import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { run } from '../../scripts/command.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { installClient } from '../e2e/client-package.ts';
import { authority } from '../parts/certificates.ts';
import { describeWith, whyMissing } from '../probe.ts';
import { enginePackages } from './engines.ts';
import { CHECKS, CODE } from './flow.ts';

/** Timeout of a check, in which the engine starts. */
const CHECK_MS = 120_000;
const BUILD_MS = 120_000;

const ENGINES = [
  { part: 'bun', title: 'the client for TypeScript in Bun', args: ['run'] },
  { part: 'deno', title: 'the client for TypeScript in Deno', args: ['run', '--allow-all', '--quiet'] },
] as const;

/** Runs one check in a project with the installed client, and prints `done`. */
const MAIN = `import * as client from '@rookery/client';
import { CHECKS } from './flow.ts';

const [title = '', tenant = '', secureUrl = ''] = process.argv.slice(2);
const rookery = new client.Rookery({ tenant });
await CHECKS[title]({ client, rookery, secureUrl });
rookery.close();
console.log('done');
`;

let scratch: string;
let served: Served;
let tls: Server;
let secureUrl: string;

beforeAll(async () => {
  if (ENGINES.every(({ part }) => whyMissing(part) !== null)) return;
  scratch = mkdtempSync(join(tmpdir(), 'rookery-engines-'));
  await installClient(scratch);
  writeFileSync(join(scratch, 'package.json'), '{"type":"module","dependencies":{"@rookery/client":"*"}}');
  cpSync(join(import.meta.dirname, 'flow.ts'), join(scratch, 'flow.ts'));
  writeFileSync(join(scratch, 'main.ts'), MAIN);
  mkdirSync(join(scratch, 'app'));
  writeFileSync(join(scratch, 'app/index.mjs'), CODE);
  served = await Served.start({ args: [STOP_AGENTS] });
  await startTls();
}, BUILD_MS);
afterAll(async () => {
  tls?.close();
  await served?.remove();
  if (scratch !== undefined) rmSync(scratch, { recursive: true, force: true });
});

/** Starts a proxy with TLS before the service. `ca.pem` has the certificate of its authority. */
async function startTls(): Promise<void> {
  const { cert, issue } = authority('the authority of a test');
  writeFileSync(join(scratch, 'ca.pem'), cert);
  const { hostname, port } = new URL(served.frontendUrl);
  tls = createServer(issue('localhost'), socket => {
    const upstream = connect(Number(port), hostname);
    socket.on('error', () => upstream.destroy()).pipe(upstream);
    upstream.on('error', () => socket.destroy()).pipe(socket);
  });
  await new Promise<void>(resolve => tls.listen(0, '127.0.0.1', resolve));
  secureUrl = `https://localhost:${(tls.address() as AddressInfo).port}`;
}

for (const { part, title, args } of ENGINES) {
  describeWith([part], title, () => {
    test.each(Object.keys(CHECKS))('%s', { timeout: CHECK_MS }, async check => {
      const tenant = `${part}-${Object.keys(CHECKS).indexOf(check)}`;
      const program = enginePackages.programOf(`node-${part}`, part);
      const ended = await run(program, [...args, 'main.ts', check, tenant, secureUrl], {
        cwd: scratch,
        capture: true,
        seconds: CHECK_MS / 1000,
        env: {
          ROOKERY_ADDRESS: served.frontendUrl,
          NODE_EXTRA_CA_CERTS: join(scratch, 'ca.pem'),
          DENO_DIR: join(scratch, 'deno'),
          HOME: scratch,
        },
      });
      expect(ended).toEqual({ code: 0, output: 'done\n' });
    });
  });
}
