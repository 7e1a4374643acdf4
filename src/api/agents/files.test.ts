import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { HostAccess } from '../../../test/http/host-access.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { failedPrecondition, resourceExhausted } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { OpenFile } from '../../sandbox/access.ts';

const AGENT = newInstance(SPEC);
const FILES = `/api/agent/${AGENT.id}/files`;
const roots: string[] = [];
afterAll(() => {
  for (const root of roots) rmSync(root, { recursive: true, force: true });
});

interface Bed extends TestFrontend {
  readonly root: string;
  readonly inside: HostAccess;
}

function bed(): Bed {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-files-')));
  roots.push(root);
  const frontend = testFrontend();
  const inside = new HostAccess(root);
  frontend.instances.put(AGENT);
  frontend.instances.inside = inside;
  return Object.assign(frontend, { root, inside });
}

type Part = readonly [name: string, value: string, fileName?: string];

function multipart(parts: readonly Part[], end = '--B--\r\n') {
  const text = parts.map(([name, value, fileName]) => {
    const file = fileName === undefined ? '' : `; filename="${fileName}"\r\nContent-Type: application/octet-stream`;
    return `--B\r\nContent-Disposition: form-data; name="${name}"${file}\r\n\r\n${value}\r\n`;
  });
  return { payload: text.join('') + end, headers: { 'content-type': 'multipart/form-data; boundary=B' } };
}

const upload = (frontend: TestFrontend, parts: readonly Part[], end?: string) =>
  frontend.send({ method: 'POST', url: `${FILES}/upload`, ...multipart(parts, end) });

const download = (frontend: TestFrontend, path: string, headers: Record<string, string> = {}) =>
  frontend.send({ method: 'GET', url: `${FILES}/download?path=${encodeURIComponent(path)}`, headers });

describe('file upload', () => {
  test('upload writes the file with the given mode and answers path and size', async () => {
    await using it = bed();
    const parts: Part[] = [
      ['path', '/a.bin'],
      ['mode', '750'],
      ['file', 'x\0ü', 'other.bin'],
    ];
    expect(await upload(it, parts)).toMatchObject({ status: 200, body: { code: 200, path: '/a.bin', size: 4 } });
    expect(readFileSync(join(it.root, 'a.bin'), 'utf8')).toBe('x\0ü');
    expect(statSync(join(it.root, 'a.bin')).mode & 0o777).toBe(0o750);
  });

  test('upload overwrites an existing file and accepts an empty one', async () => {
    await using it = bed();
    writeFileSync(join(it.root, 'a'), 'old');
    expect(
      await upload(it, [
        ['path', '/a'],
        ['file', '', 'a'],
      ]),
    ).toMatchObject({ body: { size: 0 } });
    expect(readFileSync(join(it.root, 'a'), 'utf8')).toBe('');
  });

  test.each(['/d/', '/d'])('upload adds the file name when path is the directory %s', async path => {
    await using it = bed();
    mkdirSync(join(it.root, 'd'));
    expect(
      await upload(it, [
        ['path', path],
        ['file', 'x', 'n.txt'],
      ]),
    ).toMatchObject({ body: { path: '/d/n.txt' } });
    expect(readdirSync(join(it.root, 'd'))).toEqual(['n.txt']);
  });

  test('upload strips directories from the file name and rejects ".."', async () => {
    await using it = bed();
    mkdirSync(join(it.root, 'd'));
    const answer = await upload(it, [
      ['path', '/d/'],
      ['file', 'x', '../../up.txt'],
    ]);
    expect(answer).toMatchObject({ body: { path: '/d/up.txt' } });
    expect(
      await upload(it, [
        ['path', '/d/'],
        ['file', 'x', '..'],
      ]),
    ).toMatchObject({ status: 400 });
  });

  test('upload answers 404 with a hint when the parent directory does not exist', async () => {
    await using it = bed();
    const answer = await upload(it, [
      ['path', '/no/a'],
      ['file', 'x', 'a'],
    ]);
    expect(answer).toMatchObject({
      status: 404,
      body: { message: expect.stringContaining('files/mkdir?recursive=true') },
    });
  });

  test.each<[string, Part[], string?]>([
    [
      'the field path must stand before the file',
      [
        ['file', 'x', 'a'],
        ['path', '/a'],
      ],
    ],
    ['the field path must stand before the file', [['file', 'x', 'a']]],
    ['the field file is missing', [['path', '/a']]],
    ['the field file is missing', []],
    [
      'path must not be empty',
      [
        ['path', ''],
        ['file', 'x', 'a'],
      ],
    ],
    [
      'path must not contain a NUL character',
      [
        ['path', '/a\0b'],
        ['file', 'x', 'a'],
      ],
    ],
    [
      'path must have at most 4096 bytes',
      [
        ['path', `/${'a'.repeat(4096)}`],
        ['file', 'x', 'a'],
      ],
    ],
    [
      'mode must be permission bits in octal, such as 644, 0755 or 1777, got "rw"',
      [
        ['path', '/a'],
        ['mode', 'rw'],
        ['file', 'x', 'a'],
      ],
    ],
    [
      'the field path must be given once',
      [
        ['path', '/a'],
        ['path', '/b'],
        ['file', 'x', 'a'],
      ],
    ],
    [
      'the file must be in the field file, not in "data"',
      [
        ['path', '/a'],
        ['data', 'x', 'a'],
      ],
    ],
    [
      'the field mode must stand before the file',
      [
        ['path', '/a'],
        ['file', 'x', 'a'],
        ['mode', '600'],
      ],
    ],
    [
      'it has more than one file',
      [
        ['path', '/a'],
        ['file', 'x', 'a'],
        ['file', 'y', 'b'],
      ],
    ],
    [
      'Unexpected end of multipart data',
      [
        ['path', '/a'],
        ['file', 'x', 'a'],
      ],
      '',
    ],
  ])('upload answers 400 and writes nothing: %s (%#)', async (message, parts, end) => {
    await using it = bed();
    expect(await upload(it, parts, end)).toMatchObject({
      status: 400,
      body: { code: 400, message: `invalid upload: ${message}` },
    });
    expect(readdirSync(it.root)).toEqual([]);
  });

  test.each(['text/plain', 'multipart/form-data', 'multipart/mixed; boundary=B'])(
    'upload answers 400 to a body of type %s',
    async type => {
      await using it = bed();
      const answer = await it.send({
        method: 'POST',
        url: `${FILES}/upload`,
        payload: 'x',
        headers: { 'content-type': type },
      });
      expect(answer).toMatchObject({ status: 400, body: { message: expect.stringContaining('multipart/form-data') } });
    },
  );

  test('upload answers 413 and opens no file when Content-Length is too large', async () => {
    await using it = bed();
    const write = vi.spyOn(it.inside, 'writeFile');
    const { payload, headers } = multipart([
      ['path', '/a'],
      ['file', 'x', 'a'],
    ]);
    const length = String(LIMITS.fileUploadBytes + 1024 * 1024);
    const url = new URL(`${await it.listen()}${FILES}/upload`);
    const status = await new Promise(resolve => {
      const request = http.request(
        url,
        { method: 'POST', headers: { ...headers, 'content-length': length } },
        answer => {
          resolve(answer.statusCode);
          request.destroy();
        },
      );
      request.on('error', () => undefined);
      request.write(payload);
    });
    expect(status).toBe(413);
    expect(write).not.toHaveBeenCalled();
  });

  test('upload answers 413 and leaves no file when the streamed file is too large', async () => {
    await using it = bed();
    const limits = LIMITS as { fileUploadBytes: number };
    const { fileUploadBytes } = limits;
    limits.fileUploadBytes = 1000;
    try {
      const answer = await upload(it, [
        ['path', '/a'],
        ['file', 'x'.repeat(1001), 'a'],
      ]);
      expect(answer).toMatchObject({ status: 413, body: { code: 413 } });
      expect(readdirSync(it.root)).toEqual([]);
      expect(
        await upload(it, [
          ['path', '/a'],
          ['file', 'x'.repeat(1000), 'a'],
        ]),
      ).toMatchObject({ status: 200 });
    } finally {
      limits.fileUploadBytes = fileUploadBytes;
    }
  });

  test('upload leaves no file when the client disconnects midway', async () => {
    await using it = bed();
    const write = vi.spyOn(it.inside, 'writeFile');
    const url = new URL(`${await it.listen()}${FILES}/upload`);
    const request = http.request(url, {
      method: 'POST',
      headers: { 'content-type': 'multipart/form-data; boundary=B' },
    });
    request.on('error', () => undefined);
    const { payload } = multipart(
      [
        ['path', '/a'],
        ['file', 'x'.repeat(200_000), 'a'],
      ],
      '',
    );
    request.write(payload);
    await vi.waitFor(() => expect(write).toHaveBeenCalled());
    request.destroy();
    await expect(write.mock.results[0]?.value).rejects.toThrow();
    await vi.waitFor(() => expect(readdirSync(it.root)).toEqual([]));
  });

  test('upload streams a large file: a stalled writer stops the client', async () => {
    await using it = bed();
    const taken = deferred();
    let content: Readable | undefined;
    it.inside.writeFile = async (_path, _options, stream) => {
      content = stream;
      await taken.promise;
      let sizeBytes = 0;
      for await (const chunk of stream) sizeBytes += chunk.length;
      return { sizeBytes };
    };
    const url = new URL(`${await it.listen()}${FILES}/upload`);
    const size = 32 * 1024 * 1024;
    let sent = 0;
    function* body() {
      yield multipart([['path', '/a']], '').payload;
      yield '--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n';
      for (let at = 0; at < size; at += 65_536) {
        sent += 65_536;
        yield Buffer.alloc(65_536);
      }
      yield '\r\n--B--\r\n';
    }
    const answer = deferred<string>();
    const headers = { 'content-type': 'multipart/form-data; boundary=B' };
    const request = http.request(url, { method: 'POST', headers }, async response => {
      let text = '';
      for await (const chunk of response) text += chunk;
      answer.resolve(text);
    });
    Readable.from(body()).pipe(request);
    // The client has stopped when two checks see the same number of sent bytes.
    let before = -1;
    await vi.waitFor(
      () => {
        const now = sent;
        const isStill = content !== undefined && now === before;
        before = now;
        expect(isStill).toBe(true);
      },
      { interval: 200, timeout: 30_000 },
    );
    expect(sent).toBeLessThan(size);
    taken.resolve();
    expect(JSON.parse(await answer.promise)).toEqual({ code: 200, path: '/a', size });
  });

  test('upload answers the sandbox’s error while the body is still arriving', async () => {
    await using it = bed();
    it.inside.writeFile = () => Promise.reject(resourceExhausted('there is no room on the disk'));
    const answer = await upload(it, [
      ['path', '/a'],
      ['file', 'x'.repeat(300_000), 'a'],
    ]);
    expect(answer).toMatchObject({ status: 429, body: { message: 'there is no room on the disk' } });
  });
});

test.each([
  [
    'path',
    [
      ['path', '/a\\xff'],
      ['file', 'x', 'a'],
    ],
  ],
  [
    'the name',
    [
      ['path', '/'],
      ['file', 'x', 'a\\xff'],
    ],
  ],
] as [string, Part[]][])('an upload whose %s is not UTF-8 is rejected', async (what, parts) => {
  await using it = bed();
  const { payload, headers } = multipart(parts);
  const body = Buffer.from(payload.replaceAll('\\xff', '\xff'), 'latin1');
  const { status, body: answer } = await it.send({ method: 'POST', url: `${FILES}/upload`, payload: body, headers });
  expect(status).toBe(400);
  const { message } = answer as { message: string };
  expect(message).toContain(what);
  expect(message).toContain('must be UTF-8');
  expect(readdirSync(it.root)).toEqual([]);
});

describe('file download', () => {
  const content = '0123456789';
  function withFile(): Bed {
    const it = bed();
    writeFileSync(join(it.root, 'f.txt'), content);
    return it;
  }

  test('download answers the bytes with type, length, name, mode, date and ETag', async () => {
    await using it = withFile();
    const answer = await download(it, '/f.txt');
    expect(answer).toMatchObject({
      status: 200,
      text: content,
      headers: {
        'content-type': 'application/octet-stream',
        'content-length': '10',
        'content-disposition': 'attachment; filename="f.txt"',
        'accept-ranges': 'bytes',
        'x-file-mode': '0644',
        'x-content-type-options': 'nosniff',
        'last-modified': statSync(join(it.root, 'f.txt')).mtime.toUTCString(),
        etag: expect.stringMatching(/^"a-[0-9a-f]+"$/),
        'x-trace-id': expect.any(String),
      },
    });
  });

  test('download answers an empty file, and 416 to a range of an empty file', async () => {
    await using it = bed();
    writeFileSync(join(it.root, 'e'), '');
    expect(await download(it, '/e')).toMatchObject({ status: 200, text: '', headers: { 'content-length': '0' } });
    expect(await download(it, '/e', { range: 'bytes=0-' })).toMatchObject({ status: 416 });
  });

  test('download answers HEAD with headers and no body', async () => {
    await using it = withFile();
    const answer = await it.send({ method: 'HEAD', url: `${FILES}/download?path=/f.txt` });
    expect(answer).toMatchObject({ status: 200, text: '', headers: { 'content-length': '10' } });
  });

  test.each([
    ['ü "q".txt', `attachment; filename="_ _q_.txt"; filename*=UTF-8''%C3%BC%20%22q%22.txt`],
    ["it's (1)*.txt", `attachment; filename="it's (1)*.txt"`],
    ['50%.txt', `attachment; filename="50_.txt"; filename*=UTF-8''50%25.txt`],
  ])('download encodes the file name %s in Content-Disposition', async (name, disposition) => {
    await using it = bed();
    writeFileSync(join(it.root, name), 'x');
    expect((await download(it, `/${name}`)).headers['content-disposition']).toBe(disposition);
  });

  test.each([
    ['bytes=0-3', '0123', 'bytes 0-3/10'],
    ['bytes=4-', '456789', 'bytes 4-9/10'],
    ['bytes=-3', '789', 'bytes 7-9/10'],
    ['bytes=-100', content, 'bytes 0-9/10'],
    ['bytes=8-100', '89', 'bytes 8-9/10'],
  ])('download answers 206 to Range: %s', async (range, text, contentRange) => {
    await using it = withFile();
    expect(await download(it, '/f.txt', { range })).toMatchObject({
      status: 206,
      text,
      headers: { 'content-range': contentRange, 'content-length': String(text.length) },
    });
  });

  test.each(['bytes=10-', 'bytes=100-200', 'bytes=-0'])('download answers 416 to Range: %s', async range => {
    await using it = withFile();
    expect(await download(it, '/f.txt', { range })).toMatchObject({
      status: 416,
      headers: { 'content-range': 'bytes */10' },
      body: { code: 416 },
    });
  });

  test.each(['bytes=5-2', 'bytes=-', 'lines=1-2', 'bytes=0-1,3-4', 'bytes=a-b'])(
    'download ignores Range: %s',
    async range => {
      await using it = withFile();
      expect(await download(it, '/f.txt', { range })).toMatchObject({ status: 200, text: content });
    },
  );

  test('download answers a range only when If-Range matches the file', async () => {
    await using it = withFile();
    const { etag, 'last-modified': modified } = (await download(it, '/f.txt')).headers as Record<string, string>;
    const get = async (ifRange: string) =>
      (await download(it, '/f.txt', { range: 'bytes=0-0', 'if-range': ifRange })).status;
    expect(await get(etag as string)).toBe(206);
    expect(await get(modified as string)).toBe(206);
    expect(await get('"other"')).toBe(200);
    expect(await get('Thu, 01 Jan 1970 00:00:00 GMT')).toBe(200);
  });

  test('download answers 304 when the client has the current file', async () => {
    await using it = withFile();
    const { etag, 'last-modified': modified } = (await download(it, '/f.txt')).headers as Record<string, string>;
    const get = async (headers: Record<string, string>) => (await download(it, '/f.txt', headers)).status;
    expect(await get({ 'if-none-match': `"x", ${etag}` })).toBe(304);
    expect(await get({ 'if-none-match': '"x"' })).toBe(200);
    expect(await get({ 'if-modified-since': modified as string })).toBe(304);
    expect(await get({ 'if-modified-since': 'Thu, 01 Jan 1970 00:00:00 GMT' })).toBe(200);
  });

  test('download answers 400 to a directory and an invalid path, and 404 to a missing file', async () => {
    await using it = withFile();
    mkdirSync(join(it.root, 'd'));
    expect(await download(it, '/d')).toMatchObject({ status: 400, body: { message: '/d is not a regular file' } });
    expect(await download(it, '/none')).toMatchObject({ status: 404 });
    expect(await download(it, '')).toMatchObject({ status: 400, body: { message: 'invalid query: path is required' } });
    expect(await download(it, '/a\0')).toMatchObject({ status: 400 });
  });

  test('download breaks the connection when the file becomes shorter during the download', async () => {
    await using it = withFile();
    it.inside.openFile = async (): Promise<OpenFile> => ({
      sizeBytes: 100,
      modifiedAtMs: 0,
      mode: 0o644,
      read: () => Readable.from([Buffer.from('short')]),
      close: () => undefined,
    });
    const response = await fetch(`${await it.listen()}${FILES}/download?path=/f.txt`);
    expect(response.headers.get('content-length')).toBe('100');
    await expect(response.text()).rejects.toThrow();
  });

  test('download stops reading the file when the client disconnects', async () => {
    await using it = withFile();
    const ended = deferred();
    it.inside.openFile = async (_path, signal): Promise<OpenFile> => {
      signal.addEventListener('abort', () => ended.resolve());
      const endless = new Readable({
        read() {
          this.push(Buffer.alloc(65_536));
        },
      });
      return { sizeBytes: 1e12, modifiedAtMs: 0, mode: 0o644, read: () => endless, close: () => undefined };
    };
    const request = http.get(`${await it.listen()}${FILES}/download?path=/f.txt`, () => request.destroy());
    request.on('error', () => undefined);
    await ended.promise;
  });
});

test.each([
  ['GET', 'download?path=/a%FF'],
  ['GET', 'list?path=/%FF'],
  ['POST', 'mkdir?path=/%FFdir'],
  ['GET', 'download?path=/a%ED%B3%BF'],
] as const)('a request %s %s is answered 400 when the query is not UTF-8', async (method, path) => {
  await using it = bed();
  writeFileSync(join(it.root, 'a%FF'), 'another');
  const { status, body } = await it.send({ method, url: `${FILES}/${path}` });
  expect({ status, message: (body as { message: string }).message }).toEqual({
    status: 400,
    message: 'invalid query: path must be UTF-8, percent-encoded',
  });
  expect(readdirSync(it.root)).toEqual(['a%FF']);
});

describe('file list', () => {
  test('list marks a name that is not UTF-8 and replaces each invalid byte with U+FFFD', async () => {
    await using it = bed();
    const entry = { type: 'file', sizeBytes: 0, mode: 0o644, modifiedAtMs: 0 } as const;
    it.inside.listFiles = async () => ({
      entries: [
        { ...entry, path: '/x\udcff' },
        { ...entry, path: '/y' },
      ],
      truncated: false,
    });
    const { body } = await it.send({ method: 'GET', url: `${FILES}/list?path=/` });
    const { files } = body as { files: object[] };
    expect(files).toMatchObject([
      { path: '/x\ufffd', name: 'x\ufffd', not_utf8: true },
      { path: '/y', name: 'y' },
    ]);
    expect(files[1]).not.toHaveProperty('not_utf8');
  });

  const list = (it: Bed, query: string) => it.send({ method: 'GET', url: `${FILES}/list?${query}` });

  test('list answers the files of a directory ordered by path', async () => {
    await using it = bed();
    mkdirSync(join(it.root, 'd/e'), { recursive: true });
    writeFileSync(join(it.root, 'd/e/f'), 'xyz', { mode: 0o640 });
    utimesSync(join(it.root, 'd/e/f'), new Date(), new Date('2026-01-02T03:04:05Z'));
    symlinkSync('e/f', join(it.root, 'd/l'));
    const names = (answer: { body: unknown }) =>
      (answer.body as { files: { path: string }[] }).files.map(({ path }) => path);
    expect(names(await list(it, 'path=/d'))).toEqual(['/d/e', '/d/l']);
    const deep = await list(it, 'path=/d&recursive=true');
    expect(names(deep)).toEqual(['/d/e', '/d/e/f', '/d/l']);
    expect(deep.body).toMatchObject({
      code: 200,
      truncated: false,
      files: [
        { type: 'directory' },
        {
          path: '/d/e/f',
          name: 'f',
          type: 'file',
          size: 3,
          mode: '0640',
          modified_at: '2026-01-02T03:04:05.000Z',
        },
        { type: 'symlink' },
      ],
    });
    expect(names(await list(it, 'path=/d&recursive=true&max_depth=1'))).toEqual(['/d/e', '/d/l']);
    // `max_depth` has no effect without `recursive`.
    expect(names(await list(it, 'path=/d&max_depth=2'))).toEqual(['/d/e', '/d/l']);
  });

  test.each([
    ['', 'invalid query: path is required'],
    ['path=/&recursive=maybe', 'invalid query: recursive must be true or false, got "maybe"'],
    ['path=/&recursive=true&max_depth=0', 'invalid query: max_depth must be an integer from 1 to 64, got "0"'],
    ['path=/a&path=/b', 'invalid query: path must be given once, got "/a, /b"'],
  ])('list answers 400 to the query "%s"', async (query, message) => {
    await using it = bed();
    expect(await list(it, query)).toMatchObject({ status: 400, body: { code: 400, message } });
  });
});

describe('file mkdir', () => {
  const mkdir = (it: Bed, query: string) => it.send({ method: 'POST', url: `${FILES}/mkdir?${query}` });

  test('mkdir creates a directory, and missing parents when recursive is true', async () => {
    await using it = bed();
    expect(await mkdir(it, 'path=/d&mode=700')).toMatchObject({ status: 200, body: { code: 200, path: '/d' } });
    expect(statSync(join(it.root, 'd')).mode & 0o777).toBe(0o700);
    expect(await mkdir(it, 'path=/d')).toMatchObject({ status: 409 });
    expect(await mkdir(it, 'path=/a/b/c')).toMatchObject({ status: 404 });
    expect(await mkdir(it, 'path=/a/b/c&recursive=true')).toMatchObject({ status: 200 });
    expect(await mkdir(it, 'path=/a/b/c&recursive=true')).toMatchObject({ status: 200 });
    expect(await mkdir(it, 'path=/x&mode=9')).toMatchObject({ status: 400 });
  });
});

test('file routes answer 404 to other tenants and 409 when the sandbox has no access', async () => {
  await using it = bed();
  const unknown = { status: 404, body: { code: 404, message: `instance not found: ${AGENT.id}` } };
  const urls = ['list?path=/', 'download?path=/x'];
  for (const url of urls) {
    expect(await it.send({ method: 'GET', url: `${FILES}/${url}`, headers: { tenantid: 'other' } })).toMatchObject(
      unknown,
    );
  }
  const { payload, headers } = multipart([
    ['path', '/a'],
    ['file', 'x', 'a'],
  ]);
  const answer = await it.send({
    method: 'POST',
    url: `${FILES}/upload`,
    payload,
    headers: { ...headers, tenantid: 'other' },
  });
  expect(answer).toMatchObject(unknown);
  it.instances.access = () => Promise.reject(failedPrecondition('no ways in'));
  expect(await it.send({ method: 'GET', url: `${FILES}/list?path=/` })).toMatchObject({ status: 409 });
});
