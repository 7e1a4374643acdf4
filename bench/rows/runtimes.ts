import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../scripts/command.ts';
import { type Bed, type BenchRow, interleave, NotHere } from '../bed.ts';
import { load } from '../load.ts';
import { type Measurement, median } from '../measure.ts';
import { invokePath } from '../rookery.ts';
import { BODY } from './warm-invoke.ts';

const run = promisify(execFile);

/** HTTP server with as little work per request as Python allows. */
const SERVER = `#!/usr/bin/env python3
from http.server import BaseHTTPRequestHandler, HTTPServer

class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *ignored):
        pass
    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 0\\r\\n\\r\\n")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))

HTTPServer(("127.0.0.1", 8000), Echo).serve_forever()
`;
const JAVA = 'package app; public class Main { public static Object echo(Object event) { return event; } }';

/** Measures a single caller of an existing agent for each runtime. */
export const runtimes: BenchRow = {
  name: 'runtimes',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const code = await mkdtemp(join(tmpdir(), 'rookery-bench-'));
    try {
      await build(code);
      return await compare(bed, code);
    } finally {
      await rm(code, { recursive: true });
    }
  },
};

async function build(code: string): Promise<void> {
  try {
    await run('go', ['build', '-o', join(code, 'echo'), '.'], { cwd: join(ROOT, 'test/fixtures/go') });
    await writeFile(join(code, 'Main.java'), JAVA);
    await run('javac', ['-d', code, join(code, 'Main.java')]);
  } catch (error) {
    throw new NotHere(`the programs cannot be built: ${error instanceof Error ? error.message : String(error)}`);
  }
  await writeFile(join(code, 'bootstrap'), SERVER);
  await chmod(join(code, 'bootstrap'), 0o755);
}

async function compare(bed: Bed, code: string): Promise<readonly Measurement[]> {
  const [floor, rookery] = await Promise.all([bed.floor(8), bed.rookery()]);
  const [python, go, java, http] = await Promise.all([
    rookery.create(),
    rookery.create(code, { runtime: 'go', handler: 'echo' }),
    rookery.create(code, { runtime: 'java17', handler: 'app.Main.echo' }),
    rookery.create(code, { runtime: 'http', handler: '' }),
  ]);
  const one = { body: BODY, connections: 1, durationMs: bed.turnMs };
  const warm = (id: string) => () => load({ ...one, url: rookery.url, paths: [invokePath(id)] });
  const sides = await interleave(bed, {
    floor: () => load({ ...one, url: floor.url, paths: ['/0'] }),
    python: warm(python),
    go: warm(go),
    java: warm(java),
    http: warm(http),
  });
  bed.raw.runtimes = sides;
  await rookery.deleteAll([python, go, java, http]);
  const p50Ms = (side: keyof typeof sides) => median(sides[side].map(result => result.p50Micros)) / 1000;
  return (['python', 'go', 'java', 'http'] as const).map(side => ({
    what: `warm invoke, 1 caller, ${side}, p50`,
    value: p50Ms(side),
    unit: 'ms',
    against: { what: 'floor', value: p50Ms('floor') },
  }));
}
