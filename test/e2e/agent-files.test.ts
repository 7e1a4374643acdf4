import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { cli } from '../parts/cli.ts';
import { Bed } from './agents.ts';

let bed: Bed;
let id: string;
beforeAll(async () => {
  bed = await Bed.start({ 'code.py': 'def echo(event, context):\n    return event\n' }, { args: [STOP_AGENTS] });
  id = await bed.create('files', 'code.echo');
});
afterAll(() => bed?.[Symbol.asyncDispose]());

const files = () => `/api/agent/${id}/files`;

async function exec(command: string): Promise<string> {
  const { body } = await bed.ask('POST', `/api/agent/${id}/exec`, { command });
  return String(body.stdout) + String(body.stderr);
}

/** Opens a watch and waits until it stands. */
async function watch(query: string): Promise<IncomingMessage> {
  const request = http.get(`${bed.server.frontendUrl}${files()}/watch?${query}`);
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  answer.setEncoding('utf8');
  await once(answer, 'data');
  return answer;
}

/** Reads changes until one has this type and name. */
async function readUntil(answer: IncomingMessage, last: string): Promise<string[]> {
  const seen: string[] = [];
  let rest = '';
  answer.on('error', () => undefined);
  for await (const chunk of answer as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines.filter(each => each.startsWith('data: '))) {
      const { type, name, code } = JSON.parse(line.slice(6));
      seen.push(code ?? `${type} ${name}`);
    }
    if (seen.includes(last)) return seen;
  }
  throw new Error(`the watch ended without ${last}: ${seen}`);
}

describe('single files of agents', () => {
  test('a file is described, renamed and removed', async () => {
    await exec('mkdir -p /tmp/one && echo hi > /tmp/one/file && chmod 640 /tmp/one/file && ln -s file /tmp/one/link');
    const stat = await bed.ask('GET', `${files()}/stat?path=/tmp/one/../one/file`);
    expect(stat.body.file).toMatchObject({ path: '/tmp/one/file', name: 'file', type: 'file', size: 3, mode: '0640' });
    const link = await bed.ask('GET', `${files()}/stat?path=/tmp/one/link`);
    expect(link.body.file).toMatchObject({ type: 'symlink', target: { path: '/tmp/one/file', type: 'file' } });
    const moved = await bed.ask('POST', `${files()}/rename?from=/tmp/one/file&to=/tmp/one/made/new`);
    expect(moved.body.file).toMatchObject({ path: '/tmp/one/made/new' });
    for (let count = 0; count < 2; count++) {
      expect(await bed.ask('DELETE', `${files()}?path=/tmp/one`)).toMatchObject({ status: 200 });
    }
    expect(await bed.ask('GET', `${files()}/stat?path=/tmp/one`)).toMatchObject({ status: 404 });
  });

  test('each fault of a request has its own status', async () => {
    expect(await bed.ask('GET', `${files()}/stat`)).toMatchObject({ status: 400 });
    expect(await bed.ask('GET', `${files()}/stat?path=/tmp&user=nobody-here`)).toMatchObject({ status: 400 });
    expect(await bed.ask('POST', `${files()}/rename?from=/tmp/none&to=/tmp/x`)).toMatchObject({ status: 404 });
    expect(await bed.ask('GET', `${files()}/watch?path=/etc/passwd`)).toMatchObject({ status: 400 });
    expect(await bed.ask('GET', `${files()}/watch?path=/none`)).toMatchObject({ status: 404 });
  });

  test('a watch sends changes as they happen, and the reason when the sandbox ends', async () => {
    await exec('mkdir -p /tmp/watched');
    const answer = await watch('path=/tmp/watched&recursive=true');
    const reading = readUntil(answer, 'write sub/file');
    await exec('mkdir /tmp/watched/sub && echo hi > /tmp/watched/sub/file');
    expect(await reading).toEqual(expect.arrayContaining(['create sub', 'create sub/file']));
    const ending = await bed.create('ending', 'code.echo');
    const request = http.get(`${bed.server.frontendUrl}/api/agent/${ending}/files/watch?path=/tmp`);
    const [other] = (await once(request, 'response')) as [IncomingMessage];
    other.setEncoding('utf8');
    const ended = readUntil(other, 'unavailable');
    await bed.ask('DELETE', `/api/agent/${ending}`);
    expect((await ended).at(-1)).toBe('unavailable');
  });

  test('the command line describes, renames, removes and watches files', async () => {
    const environment = { ROOKERY_ADDRESS: bed.server.frontendUrl };
    const agent = (args: readonly string[]) => cli(['agent', 'files', ...args], { environment });
    await exec('mkdir -p /tmp/cli/dir && echo hi > /tmp/cli/file');
    const shown = await agent(['stat', id, '/tmp/cli/file']);
    expect(shown.err).toBe('');
    expect(shown.out).toMatch(/^file {2}0644 {2}\S+:\S+ {2}3 {2}.* \/tmp\/cli\/file\n$/);
    expect(JSON.parse((await agent(['stat', id, '/tmp/cli/file', '--json'])).out).file).toMatchObject({ size: 3 });
    expect(await agent(['mv', id, '/tmp/cli/file', '/tmp/cli/dir/new'])).toMatchObject({ out: '', code: 0 });
    expect(await exec('cat /tmp/cli/dir/new')).toBe('hi\n');
    expect(await agent(['rm', id, '/tmp/cli/dir', '/tmp/cli/none'])).toMatchObject({ code: 0 });
    expect(await exec('ls /tmp/cli')).toBe('');
    expect((await agent(['stat', id, '/tmp/cli/none'])).code).not.toBe(0);
    const interrupted = new AbortController();
    const watching = cli(['agent', 'files', 'watch', id, '/tmp/cli', '--recursive'], {
      environment,
      signal: interrupted.signal,
      onOut: text => text.includes('found') && interrupted.abort(),
    });
    // The command has no output until it sees a change, so changes are made until it ends.
    let hasEnded = false;
    watching.finally(() => {
      hasEnded = true;
    });
    for (let count = 0; !hasEnded; count++) await exec(`touch /tmp/cli/found${count}`);
    expect((await watching).out).toMatch(/^create {2}found\d+$/m);
  }, 120_000);
});
