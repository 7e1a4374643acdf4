import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Laptop } from './laptop.ts';

/** A kind of program, from its creation to its removal. */
export interface Program {
  readonly name: string;
  readonly template: string;
  /** Adds the files that the template lacks, on the laptop before the first deploy. */
  readonly prepare?: (laptop: Laptop, directory: string) => void;
  /** Build command that runs before each deploy. */
  readonly build?: string;
  /** Command that calls the program. Its output contains `first`, and `second` after the edit. */
  readonly call: (server: string) => string;
  readonly first: string;
  readonly second: string;
  /** Text that the program's log contains. */
  readonly logs?: string;
  readonly edit: { readonly file: string; readonly from: string; readonly to: string };
}

const invoke = (name: string) => () => `rookery agent invoke ${name} '{"name": "you"}'`;
const HELLO = { first: 'Hello, you!', second: 'Goodbye, you!' };
const curl = (server: string, path: string, more = '') =>
  `curl -sS -H "X-Auth: $(cat ~/token)" ${more}${server}${path}`;

const FASTAPI = `import threading
import time
import socket

import numpy
import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.get('/sum/{n}')
def total(n: int):
    return {'sum': int(numpy.arange(n).sum())}


def initialize(context):
    threading.Thread(target=uvicorn.run, args=(app,), kwargs={'port': 8000}, daemon=True).start()
    while True:
        try:
            return socket.create_connection(('127.0.0.1', 8000), timeout=1).close()
        except OSError:
            time.sleep(0.02)


def handle(event, context):
    return total(event['n'])
`;

const EXPRESS = `import express from 'express';

const app = express();
app.get('/greet/:name', (request: express.Request, response: express.Response) => {
  response.json({ message: \`Hello, \${request.params.name}!\` });
});

export async function initialize() {
  await new Promise<void>(resolve => void app.listen(8000, '127.0.0.1', () => resolve()));
}

export async function handle(event: { name: string }) {
  return { message: \`Hello, \${event.name}!\` };
}
`;

export const PLAIN: Program = {
  name: 'plain',
  template: 'python',
  prepare: (laptop, directory) => laptop.edit(`${directory}/app.py`, '    calls =', "    print('called')\n    calls ="),
  call: invoke('plain'),
  logs: 'called\n',
  ...HELLO,
  edit: { file: 'app.py', from: 'Hello', to: 'Goodbye' },
};

const serving = (laptop: Laptop, directory: string, handler: string) =>
  laptop.edit(
    `${directory}/rookery.yaml`,
    / {4}handler: .*\n/,
    `    handler: ${handler}.handle\n    initializer: ${handler}.initialize\n    expose: { port: 8000 }\n`,
  );

export const PROGRAMS: readonly Program[] = [
  PLAIN,
  {
    name: 'fast',
    template: 'python',
    prepare(laptop, directory) {
      laptop.write(`${directory}/app.py`, FASTAPI);
      laptop.write(`${directory}/requirements.txt`, 'fastapi\nnumpy\nuvicorn\n');
      serving(laptop, directory, 'app');
    },
    call: server => curl(server, '/default/fast/sum/10'),
    first: '{"sum":45}',
    second: '{"total":45}',
    logs: 'GET /sum/10',
    edit: { file: 'app.py', from: "'sum':", to: "'total':" },
  },
  {
    name: 'express',
    template: 'typescript',
    prepare(laptop, directory) {
      laptop.write(`${directory}/index.ts`, EXPRESS);
      // The lock file is made on this machine, because the laptop reaches no registry.
      const scratch = mkdtempSync(join(tmpdir(), 'rookery-lock-'));
      try {
        const manifest = { name: 'express-app', private: true, type: 'module', dependencies: { express: '^5.1.0' } };
        writeFileSync(join(scratch, 'package.json'), JSON.stringify(manifest));
        execFileSync('npm', ['install', '--package-lock-only', '--no-audit', '--no-fund'], {
          cwd: scratch,
          stdio: 'ignore',
        });
        for (const file of ['package.json', 'package-lock.json'])
          laptop.copy(join(scratch, file), `${directory}/${file}`);
      } finally {
        rmSync(scratch, { recursive: true });
      }
      serving(laptop, directory, 'index');
    },
    call: server => curl(server, '/default/express/greet/you'),
    ...HELLO,
    edit: { file: 'index.ts', from: 'Hello', to: 'Goodbye' },
  },
  {
    name: 'gopher',
    template: 'go',
    build: 'CGO_ENABLED=0 GOOS=linux go build -o bootstrap .',
    call: invoke('gopher'),
    ...HELLO,
    edit: { file: 'main.go', from: 'Hello', to: 'Goodbye' },
  },
  {
    name: 'tools',
    template: 'mcp',
    call: server =>
      curl(
        server,
        '/default/tools/mcp',
        `-H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "you"}}}' `,
      ),
    ...HELLO,
    logs: 'POST /mcp',
    edit: { file: 'app.py', from: 'Hello', to: 'Goodbye' },
  },
];
