import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Interpreters } from '../../src/sandbox/host/interpreters.ts';
import { Bed } from './agents.ts';

const MAIN = join(ROOT, 'dist/main.js');

/** A local package index and npm registry, so that these tests cause no outside traffic. */
class Index {
  readonly #files = new Map<string, Buffer>();
  readonly #server: Server;
  /** Paths of the requests so far. */
  readonly asked: string[] = [];

  private constructor() {
    this.#server = createServer((request, answer) => {
      const path = decodeURIComponent(request.url ?? '');
      this.asked.push(path);
      if (path.startsWith('/silent')) return;
      const content = this.#files.get(path);
      answer.writeHead(content === undefined ? 404 : 200, {
        'content-type': path.startsWith('/simple/') ? 'text/html' : 'application/octet-stream',
      });
      answer.end(content);
    });
  }

  static async start(): Promise<Index> {
    const index = new Index();
    await new Promise<void>(resolve => index.#server.listen(0, '127.0.0.1', resolve));
    return index;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Adds a wheel with one module. */
  addWheel(name: string, version: string, source: string): void {
    const scratch = mkdtempSync(join(tmpdir(), 'rookery-wheel-'));
    const file = `${name}-${version}-py3-none-any.whl`;
    const info = `${name}-${version}.dist-info`;
    const make = `
import sys, zipfile
name, version, source, info, path = sys.argv[1:]
with zipfile.ZipFile(path, "w") as wheel:
    wheel.writestr(name + ".py", source)
    wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n" % (name, version))
    wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "/RECORD", "")
`;
    const made = spawnSync('python3', ['-c', make, name, version, source, info, join(scratch, file)]);
    if (made.status !== 0) throw new Error(String(made.stderr));
    const bytes = readFileSync(join(scratch, file));
    rmSync(scratch, { recursive: true });
    const page = this.#files.get(`/simple/${name}/`)?.toString() ?? '';
    const hash = createHash('sha256').update(bytes).digest('hex');
    this.#files.set(`/simple/${name}/`, Buffer.from(`${page}<a href="/files/${file}#sha256=${hash}">${file}</a>\n`));
    this.#files.set(`/files/${file}`, bytes);
  }

  /** Adds an npm package; returns its entry for a lock file. */
  addNpm(name: string, version: string, files: Readonly<Record<string, string>>): object {
    const scratch = mkdtempSync(join(tmpdir(), 'rookery-npm-'));
    mkdirSync(join(scratch, 'package'));
    const all = { 'package.json': JSON.stringify({ name, version }), ...files };
    for (const [path, text] of Object.entries(all)) writeFileSync(join(scratch, 'package', path), text);
    const tar = spawnSync('tar', ['-czf', '-', '-C', scratch, 'package'], { maxBuffer: 1024 * 1024 });
    rmSync(scratch, { recursive: true });
    const path = `/${name}/-/${name}-${version}.tgz`;
    this.#files.set(path, tar.stdout);
    const integrity = `sha512-${createHash('sha512').update(tar.stdout).digest('base64')}`;
    return { version, resolved: `${this.url}${path}`, integrity };
  }

  /** Returns a lock entry of an npm package that gets no answer when it is fetched. */
  addSilent(name: string): object {
    return { version: '1.0.0', resolved: `${this.url}/silent/${name}.tgz`, integrity: `sha512-${'A'.repeat(86)}==` };
  }

  close(): Promise<void> {
    return new Promise(resolve => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}

const APP = `
import wanted
def handle(event, context):
    import os, shutil, subprocess
    said = subprocess.run(["python3", "-c", "import wanted; print(wanted.WORD)"], stdout=subprocess.PIPE).stdout
    return {"word": wanted.WORD, "child": said.decode().strip(), "python": shutil.which("python3")}
def write(event, context):
    open(wanted.__file__, "w")
`;

let index: Index;
let bed: Bed;
const scratches: string[] = [];

beforeAll(async () => {
  index = await Index.start();
  index.addWheel('wanted', '1.0', 'WORD = "one"\n');
  index.addWheel('wanted', '2.0', 'WORD = "two"\n');
  bed = await Bed.start({ 'app.py': APP }, { args: settings() });
});
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
  await index?.close();
  for (const scratch of scratches) rmSync(scratch, { recursive: true, force: true });
});

function settings(...more: string[]): string[] {
  // The index is on the loopback of the host.
  const given = [
    'process.network=shared',
    `dependencies.pythonIndex=${index.url}/simple`,
    `dependencies.npmRegistry=${index.url}`,
    ...more,
  ];
  return given.flatMap(each => ['--set', each]);
}

function codeOf(files: Readonly<Record<string, string>>): string {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-deps-'));
  scratches.push(directory);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(directory, name, '..'), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  return directory;
}

/** JavaScript that returns the export of a package. `locked` is the package's entry in the lock file. */
function nodeCode(name: string, locked: object, word = name): string {
  const wanted = { dependencies: { [name]: '1.0.0' } };
  const packages = { '': wanted, [`node_modules/${name}`]: locked };
  return codeOf({
    'index.mjs': `// ${word}\nimport word from "${name}";\nexport const handle = () => word;\n`,
    'package.json': JSON.stringify(wanted),
    'package-lock.json': JSON.stringify({ name: 'x', lockfileVersion: 3, requires: true, packages }),
  });
}
const NODE = { runtime: 'nodejs' };

const bodyOf = (name: string, directory: string, spec: object = {}, handler = 'app.handle') =>
  bed.createBody(
    name,
    handler,
    { dependencies: 'auto', ...spec },
    { mounts: [{ source: directory, target: '/app/code', readonly: true }] },
  );
const create = async (name: string, directory: string, spec: object = {}, handler = 'app.handle', headers = {}) =>
  await bed.ask('POST', '/api/agent', bodyOf(name, directory, { codePath: '/app/code', ...spec }, handler), {
    headers,
  });
const layers = () => readdirSync(join(bed.server.dataDir, 'dependencies', 'layers'));
const buildsOf = async (tenant = 'default') =>
  (await bed.ask('GET', '/api/builds', undefined, { headers: { 'x-tenant-id': tenant } })).body.builds as {
    id: string;
    status: string;
    reason: string;
  }[];

async function logOf(id: string, query = '', tenant = 'default'): Promise<string> {
  const answer = await fetch(`${bed.server.frontendUrl}/api/builds/${id}/logs${query}`, {
    headers: { 'x-tenant-id': tenant },
  });
  return await answer.text();
}

const TIMEOUT_MS = 240_000;

describe('dependencies of Python code', () => {
  test(
    'requirements.txt and the files that it names are installed once, mounted read-only, and visible to children',
    async () => {
      const files = { 'requirements.txt': '-r more/base.txt\n', 'more/base.txt': 'wanted==1.0\n' };
      const first = await create('first', codeOf({ 'app.py': APP, ...files }));
      expect(first).toMatchObject({ status: 200 });
      const called = await bed.invoke(String(first.body.instance_id));
      expect(called.body.data).toEqual({ word: 'one', child: 'one', python: '/opt/rookery/dependencies/bin/python3' });
      const before = (await buildsOf()).length;
      const asked = index.asked.length;
      // The second code has the same dependency files and different other files.
      const second = await create('second', codeOf({ 'app.py': `${APP}\n`, ...files }), {}, 'app.write');
      expect((await bed.invoke(String(second.body.instance_id))).body.message).toContain('Read-only file system');
      expect((await buildsOf()).length).toBe(before);
      expect(index.asked.length).toBe(asked);
    },
    TIMEOUT_MS,
  );

  test(
    'dependencies are installed when the first interpreter belongs to a virtual environment that sandboxes do not see',
    async () => {
      const { path } = await new Interpreters({}, process.env).find(bed.runtime.slice('python'.length));
      const venv = mkdtempSync(join('/tmp', 'rookery-venv-'));
      scratches.push(venv);
      expect(spawnSync(path, ['-m', 'venv', '--without-pip', venv]).status).toBe(0);
      const PATH = `${venv}/bin:${process.env.PATH}`;
      await using other = await Bed.start({}, { args: settings(), env: { PATH } });
      const directory = codeOf({ 'app.py': APP, 'requirements.txt': 'wanted==1.0\n' });
      const { status, body } = await other.ask(
        'POST',
        '/api/agent',
        bodyOf('venv', directory, { codePath: '/app/code' }),
      );
      expect(body).toMatchObject({ instance_id: expect.any(String) });
      expect(status).toBe(200);
      expect((await other.invoke(String(body.instance_id))).body.data).toMatchObject({ word: 'one', child: 'one' });
    },
    TIMEOUT_MS,
  );

  test(
    'a lock decides the versions of the dependencies in pyproject.toml',
    async () => {
      const directory = codeOf({
        'app.py': APP,
        'pyproject.toml': '[project]\nname = "x"\nversion = "1"\ndependencies = ["wanted>=1"]\n',
        'poetry.lock': '[[package]]\nname = "wanted"\nversion = "1.0"\n',
      });
      const { body } = await create('locked', directory);
      expect((await bed.invoke(String(body.instance_id))).body.data).toMatchObject({ word: 'one' });
    },
    TIMEOUT_MS,
  );

  test('a file beside the code installs nothing unless the request asks for it', async () => {
    const before = layers();
    const directory = codeOf({
      'app.py': 'def handle(event, context):\n    return 1\n',
      'requirements.txt': 'nowhere\n',
    });
    const { body } = await create('plain', directory, { dependencies: '' });
    expect((await bed.invoke(String(body.instance_id))).body.data).toBe(1);
    expect(layers()).toEqual(before);
  });

  test(
    'a failed build fails the create with its last lines, leaves no files, and keeps its log',
    async () => {
      const before = layers();
      const failed = await create('failed', codeOf({ 'app.py': APP, 'requirements.txt': 'wanted==3.0\n' }));
      expect(failed.status).toBe(500);
      expect(failed.body.message).toMatch(
        /^failed to create agent: the dependencies could not be installed: (pip|uv) ended with exit code 1:\n/,
      );
      expect(failed.body.message).toContain('wanted==3.0');
      expect(layers()).toEqual(before);
      expect((await bed.ask('GET', '/api/agent?namespace=e2e&name=failed')).body.instances).toEqual([]);
      const [build] = await buildsOf();
      expect(build).toMatchObject({ status: 'FAILED', reason: expect.stringContaining('wanted==3.0') });
      expect(await logOf(String(build?.id))).toContain('wanted==3.0');
    },
    TIMEOUT_MS,
  );

  test('an unsafe directory, a path as a requirement, and a link to a file elsewhere are refused', async () => {
    const ask = (source: string) => bed.ask('POST', '/api/builds', { source, runtime: bed.runtime });
    expect(await ask('/etc')).toMatchObject({ status: 400, body: { message: 'unsafe code path: /etc' } });
    const path = await create('path', codeOf({ 'requirements.txt': '-e ../other\n' }));
    expect(path.body.message).toContain('requirements.txt: "-e ../other" is a path');
    const linked = codeOf({});
    symlinkSync('/etc/hostname', join(linked, 'requirements.txt'));
    expect((await ask(linked)).body).toEqual({ code: 200, build: null });
  });
});

describe('dependencies of JavaScript', () => {
  test(
    'npm ci installs the packages of package.json and its lock, and the code finds them',
    async () => {
      const locked = index.addNpm('greets', '1.0.0', { 'index.js': 'module.exports = "hello"' });
      const created = await create('node', nodeCode('greets', locked), NODE, 'index.handle');
      expect(created).toMatchObject({ status: 200 });
      expect((await bed.invoke(String(created.body.instance_id))).body.data).toBe('hello');
    },
    TIMEOUT_MS,
  );

  test('a package.json with dependencies and no lock is refused with the command that makes one', async () => {
    const unlocked = codeOf({ 'package.json': '{"dependencies": {"greets": "1.0.0"}}' });
    const refused = await create('unlocked', unlocked, NODE, 'index.handle');
    expect(refused.body.message).toContain('"npm install --package-lock-only" makes one');
  });

  test(
    'the log of a running build is streamed, and all creates with the same dependencies wait for one build',
    async () => {
      const locked = index.addNpm('shared', '1.0.0', { 'index.js': 'module.exports = "shared"' });
      const directory = nodeCode('shared', locked);
      const ask = () => bed.ask('POST', '/api/builds', { source: directory, runtime: 'nodejs' });
      const [first, second] = await Promise.all([ask(), ask()]);
      const { id } = first.body.build as { id: string };
      expect(second.body.build).toMatchObject({ id });
      const log = logOf(id, '?follow=true');
      const created = await create('streamed', directory, NODE, 'index.handle');
      expect((await bed.invoke(String(created.body.instance_id))).body.data).toBe('shared');
      expect(await log).toContain('added 1 package');
      expect((await bed.ask('GET', `/api/builds/${id}`)).body.build).toMatchObject({ status: 'READY' });
      // npm begins with an empty line.
      expect(await logOf(id, '?tail=100')).toBe(await log);
      // State after a crash or a full disk of the server when the layer exists.
      const record = join(bed.server.dataDir, 'dependencies', 'builds', `${id}.json`);
      for (const lost of [() => rmSync(record), () => writeFileSync(record, '')]) {
        lost();
        expect(await buildsOf()).not.toContainEqual(expect.objectContaining({ id }));
        expect((await ask()).body.build).toMatchObject({ id, status: 'READY' });
      }
      expect(index.asked.filter(path => path.includes('shared-1.0.0.tgz'))).toHaveLength(1);
    },
    TIMEOUT_MS,
  );

  test(
    'packages that one tenant installed are not shared with another',
    async () => {
      const directory = nodeCode('tenants', index.addNpm('tenants', '1.0.0', { 'index.js': 'module.exports = 1' }));
      const build = (tenant: string) =>
        bed.ask(
          'POST',
          '/api/builds',
          { source: directory, runtime: 'nodejs' },
          { headers: { 'x-tenant-id': tenant } },
        );
      const [ours, theirs] = await Promise.all([build('default'), build('other')]);
      const { id } = ours.body.build as { id: string };
      expect((theirs.body.build as { id: string }).id).not.toBe(id);
      for (const path of [`/api/builds/${id}`, `/api/builds/${id}/logs`]) {
        expect((await bed.ask('GET', path, undefined, { headers: { 'x-tenant-id': 'other' } })).status).toBe(404);
      }
      expect((await buildsOf('other')).map(each => each.id)).not.toContain(id);
      await Promise.all([
        logOf(id, '?follow=true'),
        logOf(String((theirs.body.build as { id: string }).id), '?follow=true', 'other'),
      ]);
      expect(index.asked.filter(path => path.includes('tenants-1.0.0.tgz'))).toHaveLength(2);
    },
    TIMEOUT_MS,
  );

  test(
    'an install script sees nothing of the service',
    async () => {
      const looks = `const seen = require('fs').existsSync(${JSON.stringify(bed.server.dataDir)});
require('fs').writeFileSync('seen.json', JSON.stringify({ seen }));`;
      const locked = index.addNpm('hooked', '1.0.0', {
        'package.json': '{"name": "hooked", "version": "1.0.0", "scripts": {"install": "node install.js"}}',
        'install.js': looks,
        'index.js': 'module.exports = require("./seen.json")',
      });
      const { body } = await create(
        'hooked',
        nodeCode('hooked', { ...locked, hasInstallScript: true }),
        NODE,
        'index.handle',
      );
      expect((await bed.invoke(String(body.instance_id))).body.data).toEqual({ seen: false });
    },
    TIMEOUT_MS,
  );

  test(
    'a failed register shows the last lines of the build, and instances of a successful one have the packages',
    async () => {
      const fn = (name: string, codePath: string) => ({
        ...{ name: `0@e2e@${name}`, kind: 'faas', runtime: 'nodejs', cpu: 500, memory: 512, handler: 'index.handle' },
        ...{ storageType: 'copy', codePath, dependencies: 'auto' },
      });
      const meta = { meta: true };
      const nowhere = {
        version: '1.0.0',
        resolved: `${index.url}/nowhere.tgz`,
        integrity: `sha512-${'A'.repeat(86)}==`,
      };
      const refused = await bed.ask('POST', '/serverless/v1/functions', fn('bad', nodeCode('nowhere', nowhere)), meta);
      expect(refused.body).toMatchObject({ code: 4104, message: expect.stringContaining('nowhere.tgz') });
      const missing = await bed.ask('GET', '/serverless/v1/functions/0@e2e@bad?versionNumber=latest', undefined, meta);
      expect(missing.body.code).toBe(4115);
      const good = nodeCode('good', index.addNpm('good', '1.0.0', { 'index.js': 'module.exports = "good"' }));
      const registered = await bed.ask('POST', '/serverless/v1/functions', fn('good', good), meta);
      expect(registered.body).toMatchObject({ code: 0, function: { dependencies: 'auto' } });
      const urn = encodeURIComponent(String(registered.body.functionVersionUrn));
      expect((await bed.ask('POST', `/serverless/v1/functions/${urn}/invocations`, {})).body).toBe('good');
    },
    TIMEOUT_MS,
  );

  test(
    'packages of a sandbox survive a kill of the service and are not fetched again for the next sandbox',
    async () => {
      const locked = index.addNpm('kept', '1.0.0', { 'index.js': 'module.exports = "kept"' });
      const { body } = await create('kept', nodeCode('kept', locked), NODE, 'index.handle');
      const id = String(body.instance_id);
      await bed.killAndRestart();
      const uses = () =>
        readdirSync(join(bed.server.dataDir, 'dependencies', 'uses')).filter(name => name.startsWith(id));
      expect(uses()).toEqual([`${id}.1`]);
      const asked = index.asked.length;
      expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
      expect((await bed.invoke(id)).body.data).toBe('kept');
      expect(index.asked.length).toBe(asked);
      expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
      await expect.poll(uses).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    'the command line shows the log of the build, and leaves dependencies out with its option',
    async () => {
      const directory = nodeCode('shown', index.addNpm('shown', '1.0.0', { 'index.js': 'module.exports = "shown"' }));
      const run = (name: string, ...flags: string[]) =>
        rookery(
          'agent',
          'create',
          name,
          '--code',
          directory,
          '--handler',
          'index.handle',
          '--runtime',
          'nodejs',
          ...flags,
        );
      const without = await run('cli-without', '--no-dependencies');
      expect(without.err).toContain('shown');
      expect(without.err).not.toContain('installing dependencies');
      const shown = await run('cli-installs', '--upload');
      expect(shown.err).toMatch(/installing dependencies with npm \(build [0-9a-f]{40}\)[\s\S]*added 1 package/);
      expect(shown.code).toBe(0);
    },
    TIMEOUT_MS,
  );
});

/** Code whose own install script runs `script` in the directory of the installation. */
function scriptedCode(script: string): string {
  const locked = index.addNpm('plain', '1.0.0', { 'index.js': 'module.exports = "plain";\n' });
  const directory = nodeCode('plain', locked);
  const wanted = { dependencies: { plain: '1.0.0' }, scripts: { postinstall: script } };
  writeFileSync(join(directory, 'package.json'), JSON.stringify(wanted));
  return directory;
}

describe('an install script', () => {
  test.for<readonly [string, string, string]>([
    ['a link to /', 'rm -rf node_modules; ln -s / node_modules', 'node_modules is a symbolic link'],
    ['a link to /etc', 'rm -rf node_modules; ln -s /etc node_modules', 'node_modules is a symbolic link'],
    ['a link to ..', 'rm -rf node_modules; ln -s .. node_modules', 'node_modules is a symbolic link'],
    ['a link to nothing', 'rm -rf node_modules; ln -s /none node_modules', 'node_modules is a symbolic link'],
    ['a file', 'rm -rf node_modules; echo x > node_modules', 'node_modules is a file'],
    ['the directory around it and a link', 'cd ..; rm -rf .rookery-build; ln -s /etc .rookery-build', ''],
  ])(
    'an install script that leaves %s in place of node_modules fails the build',
    { timeout: TIMEOUT_MS },
    async ([title, script, text]) => {
      const name = `script-${title.replaceAll(/\W+/g, '-')}x`;
      const answer = await create(name, scriptedCode(script), NODE, 'index.handle');
      expect(answer.status).toBe(500);
      expect(answer.body.message).toContain('the dependencies could not be installed: npm ended with exit code ');
      expect(answer.body.message).toContain(text);
    },
  );

  test(
    'an install script that leaves a link beside the packages gets no access outside of the sandbox',
    async () => {
      const code = scriptedCode('ln -s /etc node_modules/etc; ln -s / ../../root; ln -s / ../node_modules');
      writeFileSync(
        join(code, 'index.mjs'),
        'import fs from "node:fs";\nexport const handle = () => fs.readdirSync("/app/node_modules/etc").includes("shadow");\n',
      );
      const { body } = await create('script-beside', code, NODE, 'index.handle');
      expect((await bed.invoke(String(body.instance_id))).body).toMatchObject({ data: false });
    },
    TIMEOUT_MS,
  );
});

test(
  'layers of the older layout are removed at the start and are never mounted',
  async () => {
    const layers = join(bed.server.dataDir, 'dependencies/layers');
    const [linked, plain] = ['a', 'b'].map(each => join(layers, each.repeat(40)));
    for (const path of [linked, plain]) mkdirSync(path as string, { recursive: true });
    symlinkSync('/etc', join(linked as string, 'node_modules'));
    mkdirSync(join(plain as string, 'node_modules'));
    await bed.killAndRestart();
    expect(readdirSync(layers).filter(name => /^[ab]{40}$/.test(name))).toEqual([]);
  },
  TIMEOUT_MS,
);

test(
  'a build without a network, or above its time or size, fails with the reason',
  async () => {
    const large = index.addNpm('large', '1.0.0', { 'index.js': `//${'x'.repeat(2 * 1024 * 1024)}` });
    for (const [setting, locked, text] of [
      ['dependencies.network=none', large, 'the setting dependencies.network is none'],
      ['dependencies.timeoutSeconds=1', index.addSilent('large'), 'npm took longer than 1 s'],
      ['dependencies.maxMb=1', large, 'the limit is 1048576'],
    ] as const) {
      const other = await Bed.start({}, { args: settings(setting) });
      try {
        const answer = await other.ask(
          'POST',
          '/api/agent',
          bodyOf('bounded', nodeCode('large', locked), { ...NODE, codePath: '/app/code' }),
        );
        expect(answer.status).toBe(500);
        expect(answer.body.message).toContain(text);
        const left = readdirSync(join(other.server.dataDir, 'dependencies'), { recursive: true }).map(String);
        expect(left.filter(path => /^(layers|uses)\//.test(path))).toEqual([]);
      } finally {
        await other[Symbol.asyncDispose]();
      }
    }
  },
  TIMEOUT_MS,
);

async function rookery(...args: string[]): Promise<{ readonly code: number | null; readonly err: string }> {
  const addresses = { ROOKERY_ADDRESS: bed.server.frontendUrl, ROOKERY_META_ADDRESS: bed.server.metaUrl };
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { ...process.env, ...addresses },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let err = '';
  child.stderr.setEncoding('utf8').on('data', text => {
    err += text;
  });
  const [code] = await once(child, 'close');
  return { code, err };
}
