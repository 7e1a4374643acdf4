import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import tar, { type Header } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Bed } from './agents.ts';

const MEBIBYTE = 1024 * 1024;

type Entry = Partial<Header> & { readonly name: string; readonly content?: string };

async function archive(...entries: readonly Entry[]): Promise<{ readonly bytes: Buffer; readonly sha256: string }> {
  const pack = tar.pack();
  for (const { content, ...header } of entries) {
    if (content === undefined) pack.entry(header);
    else pack.entry(header, content);
  }
  pack.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of pack) chunks.push(chunk as Buffer);
  const bytes = gzipSync(Buffer.concat(chunks));
  return { bytes, sha256: createHash('sha256').update(bytes).digest('hex') };
}

const SOURCE = (text: string) => `
import os
def handle(event, context):
    return {"text": ${JSON.stringify(text)}, "link": os.readlink(os.path.dirname(__file__) + "/link.py")}
def write(event, context):
    open(os.path.dirname(__file__) + "/new", "w")
`;
const appOf = (text: string) =>
  archive(
    { name: 'app.py', content: SOURCE(text) },
    { name: 'link.py', type: 'symlink', linkname: 'app.py' },
    { name: 'deep/sub/data', content: 'x' },
  );

let bed: Bed;
let outside: string;

beforeAll(async () => {
  outside = mkdtempSync(join(tmpdir(), 'rookery-allowed-'));
  // The server may read no directory of a caller: all code comes as packages.
  bed = await Bed.start(
    { 'app.py': SOURCE('of the host') },
    { args: ['--set', `mounts.allow=${outside}`, '--set', 'code.tenantMb=100'] },
  );
});
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
  rmSync(outside, { recursive: true, force: true });
});

async function put(sha256: string, bytes: Uint8Array, tenant = 'default') {
  const answer = await fetch(`${bed.server.frontendUrl}/api/code/${sha256}`, {
    method: 'PUT',
    body: Buffer.from(bytes),
    headers: { 'x-tenant-id': tenant },
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}
const head = async (sha256: string, tenant = 'default') =>
  (
    await fetch(`${bed.server.frontendUrl}/api/code/${sha256}`, {
      method: 'HEAD',
      headers: { 'x-tenant-id': tenant },
    })
  ).status;
async function create(body: object): Promise<string> {
  const answer = await bed.ask('POST', '/api/agent', body);
  expect(answer).toMatchObject({ status: 200 });
  return String(answer.body.instance_id);
}
const agentOf = (name: string, sha256: string, handler = 'app.handle') =>
  bed.createBody(name, handler, {}, { mounts: [{ source: `code://${sha256}`, target: '/code' }] });

describe('code packages', () => {
  test('an uploaded package exists for its tenant only and is not uploaded again', async () => {
    const { bytes, sha256 } = await appOf('put');
    expect(await head(sha256)).toBe(404);
    const first = await put(sha256, bytes);
    expect(first).toMatchObject({
      status: 200,
      body: { code: 200, package: { sha256, source: `code://${sha256}`, bytes: bytes.length } },
    });
    expect(await head(sha256)).toBe(200);
    expect(await head(sha256, 'other')).toBe(404);
    expect((await bed.ask('GET', `/api/code/${sha256}`)).body).toMatchObject({ package: { sha256 } });
    expect((await put(sha256, new Uint8Array([1]))).body.package).toMatchObject({ bytes: bytes.length });
    expect((await bed.ask('GET', '/api/code')).body.packages).toContainEqual(expect.objectContaining({ sha256 }));
    const ofOther = await bed.ask('GET', '/api/code', undefined, { headers: { 'x-tenant-id': 'other' } });
    expect(ofOther.body).toEqual({ code: 200, packages: [], next_cursor: null });
    expect(await bed.ask('DELETE', `/api/code/${sha256}`)).toMatchObject({ status: 200, body: { status: 'deleted' } });
    expect(await head(sha256)).toBe(404);
    expect(await bed.ask('DELETE', `/api/code/${sha256}`)).toMatchObject({ status: 404 });
  });

  test('a list of packages has pages', async () => {
    const all = await Promise.all(['one', 'two', 'three'].map(appOf));
    for (const { bytes, sha256 } of all) expect((await put(sha256, bytes, 'pages')).status).toBe(200);
    const seen: string[] = [];
    for (let cursor: unknown = ''; cursor !== null; ) {
      const { body } = await bed.ask('GET', `/api/code?limit=2&cursor=${cursor}`, undefined, {
        headers: { 'x-tenant-id': 'pages' },
      });
      seen.push(...(body.packages as { sha256: string }[]).map(each => each.sha256));
      cursor = body.next_cursor;
    }
    expect(seen).toEqual(all.map(({ sha256 }) => sha256).sort());
    expect(await bed.ask('GET', '/api/code?cursor=x')).toMatchObject({ status: 400 });
  });

  test('a package that differs from its name, or does not unpack, is refused and leaves nothing', async () => {
    const { bytes, sha256 } = await appOf('refused');
    const wrong = 'ab'.repeat(32);
    expect(await put(wrong, bytes)).toMatchObject({
      status: 400,
      body: { code: 400, message: `the content has the SHA-256 ${sha256}, expected ${wrong}` },
    });
    expect(await put('ABC', bytes)).toMatchObject({ status: 400 });
    const hash = (content: Uint8Array) => createHash('sha256').update(content).digest('hex');
    const text = Buffer.from('no archive');
    expect(await put(hash(text), text)).toMatchObject({
      status: 400,
      body: { message: 'it is no archive that can be unpacked: expected a zip or a tar.gz archive' },
    });
    for (const hostile of [
      { name: '../out', content: 'x' },
      { name: 'link', type: 'symlink' as const, linkname: '../out' },
      { name: 'link', type: 'symlink' as const, linkname: '/etc/passwd' },
      { name: 'a/link', type: 'symlink' as const, linkname: 'b/../../../etc' },
      { name: 'hard', type: 'link' as const, linkname: 'app.py' },
    ]) {
      const { bytes: evil, sha256: name } = await archive(hostile);
      expect(await put(name, evil)).toMatchObject({
        status: 400,
        body: { message: expect.stringMatching(/^the archive is refused/) },
      });
      expect(await head(name)).toBe(404);
    }
    expect(await head(wrong)).toBe(404);
    expect(readdirSync(join(bed.server.dataDir, 'code/uploads'))).toEqual([]);
    expect(readdirSync(join(bed.server.dataDir, 'code/work'))).toEqual([]);
  });

  test('a small archive that unpacks to many bytes is refused at the limits, and its cache entry is removed at once', async () => {
    const cached = () => readdirSync(join(bed.server.dataDir, 'code/cache')).sort();
    const before = cached();
    const bomb = await archive({ name: 'app.py', content: '#'.repeat(300 * MEBIBYTE) });
    expect(await put(bomb.sha256, bomb.bytes, 'bombs')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('200 times') },
    });
    const large = (text: string) => archive({ name: 'app.py', content: text.repeat(60 * MEBIBYTE) });
    const [first, second] = [await large('a'), await large('b')];
    expect(await put(first.sha256, first.bytes, 'bombs')).toMatchObject({ status: 200 });
    const withFirst = cached();
    expect(withFirst).toHaveLength(before.length + 1);
    expect(await put(second.sha256, second.bytes, 'bombs')).toMatchObject({
      status: 429,
      body: { message: expect.stringContaining('code.tenantMb') },
    });
    expect(cached()).toEqual(withFirst);
    expect(await head(second.sha256, 'bombs')).toBe(404);
    // Another tenant has its own quota.
    expect(await put(second.sha256, second.bytes, 'other')).toMatchObject({ status: 200 });
  });

  test('an agent mounts its package read-only with its links, and the package cannot be deleted meanwhile', async () => {
    const { bytes, sha256 } = await appOf('agent');
    await put(sha256, bytes);
    const id = await create(agentOf('coded', sha256));
    expect(await bed.invoke(id, {})).toMatchObject({ body: { data: { text: 'agent', link: 'app.py' } } });
    const { body } = await bed.ask('GET', `/api/agent/${id}`);
    expect((body.instance as { rootfs: unknown }).rootfs).toMatchObject({
      mounts: [{ source: `code://${sha256}`, target: '/code', readonly: true }],
    });
    expect(await bed.ask('DELETE', `/api/code/${sha256}`)).toMatchObject({
      status: 409,
      body: { code: 409, message: `the code package ${sha256} is in use: agent e2e/coded refers to it` },
    });
    const writer = await create(agentOf('writer', sha256, 'app.write'));
    expect((await bed.invoke(writer, {})).body.message).toMatch(/Read-only file system/);
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    expect(await bed.invoke(id, {})).toMatchObject({ body: { data: { text: 'agent' } } });
    for (const each of [id, writer]) expect((await bed.ask('DELETE', `/api/agent/${each}`)).status).toBe(200);
    expect((await bed.ask('DELETE', `/api/code/${sha256}`)).status).toBe(200);
  });

  test('an agent with a package survives a restart of the service, and can be restarted afterwards', async () => {
    const { bytes, sha256 } = await appOf('survivor');
    await put(sha256, bytes);
    const id = await create(agentOf('survivor', sha256));
    await bed.killAndRestart();
    expect(await bed.invoke(id, {})).toMatchObject({ body: { data: { text: 'survivor' } } });
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    expect(await bed.invoke(id, {})).toMatchObject({ body: { data: { text: 'survivor' } } });
    await bed.ask('DELETE', `/api/agent/${id}`);
  });

  test('a missing package, or one of another tenant, is refused as a source, and other sources follow their rules', async () => {
    const { bytes, sha256 } = await appOf('of another');
    await put(sha256, bytes, 'another');
    expect(await bed.ask('POST', '/api/agent', agentOf('no', sha256))).toMatchObject({
      status: 500,
      body: { code: 500, message: `failed to create agent: mount source does not exist: code://${sha256}` },
    });
    expect(await bed.ask('POST', '/api/agent', agentOf('no', 'abc'))).toMatchObject({ status: 400 });
    const onHost = bed.createBody('no', 'app.handle');
    expect(await bed.ask('POST', '/api/agent', onHost)).toMatchObject({
      status: 400,
      body: { message: `unsafe mount source: ${bed.codeDir} (mounts.allow does not name it)` },
    });
  });

  test('each version of a function runs the package to which it refers', async () => {
    const [one, two] = [await appOf('one'), await appOf('two')];
    const fn = { name: '0@code@fn', kind: 'faas', runtime: bed.runtime, cpu: 500, memory: 256, handler: 'app.handle' };
    const codeOf = (sha256: string) => ({ storageType: 'package', codePath: `code://${sha256}` });
    const meta = { meta: true } as const;
    const register = (code: object) => bed.ask('POST', '/serverless/v1/functions', { ...fn, ...code }, meta);
    expect(await register(codeOf('abc'))).toMatchObject({ status: 400, body: { code: 4104 } });
    expect(await register(codeOf(one.sha256))).toMatchObject({
      status: 200,
      body: { code: 4104, message: `codePath: the code package does not exist: code://${one.sha256}` },
    });
    for (const each of [one, two]) await put(each.sha256, each.bytes);
    const { body } = await register(codeOf(one.sha256));
    const { revisionId, codeSha256 } = body.function as Record<string, string>;
    expect(codeSha256).toBe(one.sha256);
    const path = '/serverless/v1/functions/0@code@fn';
    await bed.ask('POST', `${path}/versions`, { revisionId, versionNumber: 'v1' }, meta);
    await bed.ask('PUT', path, { revisionId, ...codeOf(two.sha256) }, meta);
    const call = async (version: string) =>
      (
        await bed.ask(
          'POST',
          `/serverless/v1/functions/sn:cn:yrk:default:function:0@code@fn:${version}/invocations`,
          {},
        )
      ).body;
    expect(await call('v1')).toMatchObject({ text: 'one' });
    expect(await call('$latest')).toMatchObject({ text: 'two' });
    expect((await bed.ask('DELETE', `/api/code/${one.sha256}`)).body.message).toBe(
      `the code package ${one.sha256} is in use: function 0@code@fn:v1 refers to it`,
    );
    await bed.ask('DELETE', `${path}?versionNumber=v1`, undefined, meta);
    expect((await bed.ask('DELETE', `/api/code/${one.sha256}`)).status).toBe(200);
    await bed.ask('DELETE', path, undefined, meta);
  });

  test('an agent that is made from a function has its package where the function service puts it', async () => {
    const { bytes, sha256 } = await appOf('registered');
    await put(sha256, bytes);
    const { body } = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name: '0@code@agent', kind: 'agent', runtime: bed.runtime, cpu: 500, memory: 256, handler: 'app.handle' },
        ...{ storageType: 'package', codePath: `code://${sha256}`, rootfs: { imageurl: 'host' } },
      },
      { meta: true },
    );
    const urn = body.functionVersionUrn;
    const id = await create({ namespace: 'e2e', name: 'registered', urn });
    expect(await bed.invoke(id, {})).toMatchObject({ body: { data: { text: 'registered' } } });
    await bed.ask('DELETE', `/api/agent/${id}`);
    expect(existsSync(join(bed.server.dataDir, 'code/packages'))).toBe(true);
  });
});
