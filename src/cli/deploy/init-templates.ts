import { chmod, lstat, mkdir, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { localPython } from '../code/runtime.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import type { TemplateName } from './init-names.ts';

interface Template {
  readonly files: (name: string, python: string) => Readonly<Record<string, string>>;
  readonly executable?: readonly string[];
  /** Command to run before the deploy. */
  readonly before?: string;
}

const IGNORE = `# What is not uploaded, as in a .gitignore. Left out anyway: .git, .venv, node_modules, __pycache__.
.env
*.log
`;

const PYTHON = `"""An agent. What it keeps in context.state lives as long as the agent."""


def handle(event, context):
    calls = context.state['calls'] = context.state.get('calls', 0) + 1
    return {'message': 'Hello, %s!' % event.get('name', 'world'), 'calls': calls}
`;

const TYPESCRIPT = `// An agent. What it keeps in context.state lives as long as the agent. Types are taken out when it is loaded: nothing has to be built.

interface Event {
  readonly name?: string;
}

interface Context {
  readonly state: { calls?: number };
}

export async function handle(event: Event, context: Context) {
  context.state.calls = (context.state.calls ?? 0) + 1;
  return { message: \`Hello, \${event.name ?? 'world'}!\`, calls: context.state.calls };
}
`;

const MCP = `"""An MCP server over streamable HTTP, at /mcp of the agent's address: "rookery open" prints the address."""

import asyncio
import socket
import threading
import time

from mcp.server import MCPServer

mcp = MCPServer('server')


@mcp.tool()
def greet(name: str) -> str:
    """Greets somebody."""
    return 'Hello, %s!' % name


def serve():
    # Every request stands for itself: it may reach the server anew after a restart. 0.0.0.0: the address is checked by the service in front.
    mcp.run('streamable-http', host='0.0.0.0', port=8000, stateless_http=True, json_response=True)


def initialize(context):
    threading.Thread(target=serve, daemon=True).start()
    # Whoever comes after the create finds it listening.
    while True:
        try:
            return socket.create_connection(('127.0.0.1', 8000), timeout=1).close()
        except OSError:
            time.sleep(0.02)


def handle(event, context):
    """A call of the agent beside MCP: which tools there are."""
    return {'tools': [tool.name for tool in asyncio.run(mcp.list_tools())]}
`;

const HTTP = `#!/usr/bin/env python3
"""A server that speaks HTTP; any program that can listen on 127.0.0.1:8000 can stand in its place."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    # Connections stay open between calls.
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        # /healthz: the first call comes after this has answered 200.
        self.answer(200 if self.path == '/healthz' else 404, {})

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.answer(200, {'message': 'Hello, %s!' % event.get('name', 'world')})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
`;

const GO = `// A server that speaks HTTP. Build it before each deploy: CGO_ENABLED=0 GOOS=linux go build -o bootstrap .
package main

import (
	"encoding/json"
	"log"
	"net/http"
)

func main() {
	http.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /invoke", func(w http.ResponseWriter, r *http.Request) {
		event := struct{ Name string }{"world"}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]string{"message": "Hello, " + event.Name + "!"})
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", nil))
}
`;

interface Running {
  readonly runtime: string;
  /** Further fields, indented. */
  readonly fields?: string;
  readonly memory?: number;
}

const deployment = (
  name: string,
  { runtime, fields = '', memory = 256 }: Running,
) => `# What "rookery deploy" brings the service to; docs/start/deploy.md tells of every field.
agents:
  ${name}:
    code: .
    runtime: ${runtime}
${fields}    cpu: 500
    memory: ${memory}
`;

const MCP_FIELDS = `    handler: app.handle
    initializer: app.initialize
    # Who has a token reaches it; link: also who has a signed link; public: everybody.
    expose: { port: 8000, access: token }
`;

const TEMPLATES: Readonly<Record<TemplateName, Template>> = {
  python: {
    files: (name, python) => ({
      'rookery.yaml': deployment(name, { runtime: python, fields: '    handler: app.handle\n' }),
      'app.py': PYTHON,
      '.rookeryignore': IGNORE,
    }),
  },
  typescript: {
    files: name => ({
      'rookery.yaml': deployment(name, { runtime: 'nodejs', fields: '    handler: index.handle\n' }),
      'index.ts': TYPESCRIPT,
      'package.json': `${JSON.stringify({ name, private: true, type: 'module' }, null, 2)}\n`,
      '.rookeryignore': IGNORE,
    }),
  },
  mcp: {
    files: (name, python) => ({
      'rookery.yaml': deployment(name, { runtime: python, fields: MCP_FIELDS, memory: 512 }),
      'app.py': MCP,
      'requirements.txt': 'mcp>=2,<3\n',
      '.rookeryignore': IGNORE,
    }),
  },
  http: {
    files: name => ({
      'rookery.yaml': deployment(name, { runtime: 'http' }),
      bootstrap: HTTP,
      '.rookeryignore': IGNORE,
    }),
    executable: ['bootstrap'],
  },
  go: {
    files: name => ({
      'rookery.yaml': deployment(name, { runtime: 'http' }),
      'main.go': GO,
      'go.mod': `module ${name}\n\ngo 1.22\n`,
      '.rookeryignore': `${IGNORE}# The sources stay here: only the program that is built from them is uploaded.\n*.go\ngo.mod\n`,
    }),
    before: 'CGO_ENABLED=0 GOOS=linux go build -o bootstrap .',
  },
};

/** Assumes that the service has the same Python as this machine. */
const HERE = new URL('http://localhost');

/** Writes all files, or none when one of them exists. */
export async function writeTemplate(io: Io, template: TemplateName, given: string): Promise<void> {
  const { files, executable = [], before } = TEMPLATES[template];
  const directory = resolve(given);
  const name =
    basename(directory)
      .toLowerCase()
      .replace(/[^a-z0-9-]+/g, '-')
      .replace(/^-+|-+$/g, '') || 'hello';
  const entries = Object.entries(files(name, await localPython(HERE).catch(() => 'python3.11')));
  for (const [file] of entries) {
    const found = await lstat(join(directory, file)).catch(() => null);
    if (found !== null)
      throw usageError(`${join(given, file)} already exists: nothing was written. Name another directory.`);
  }
  await mkdir(directory, { recursive: true });
  for (const [file, content] of entries) {
    await writeFile(join(directory, file), content, { flag: 'wx' });
    if (executable.includes(file)) await chmod(join(directory, file), 0o755);
    io.out.write(`${join(given, file)}\n`);
  }
  const steps = [
    ...(given === '.' ? [] : [`cd ${given}`]),
    ...(before === undefined ? [] : [before]),
    'rookery deploy',
  ];
  io.err.write(`\nNow:\n${steps.map(step => `  ${step}\n`).join('')}`);
}
