import type { ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const ID = '11111111-2222-4333-8444-555555555555';
const RECORD = { instance_id: ID, namespace: 'default', name: 'a', status: 'FAILED', restarts: 0 };
const event = (text: string) => `data: ${Buffer.from(text).toString('base64')}\n\n`;
const END = 'event: end\ndata:\n\n';

/** Serves a log. Each connection sends one of `streams`, and breaks off when the stream has no end event. */
function logService(log: string, streams: readonly string[], records: readonly object[] = [RECORD]) {
  let connections = 0;
  let looks = 0;
  return StubService.start(({ url }, response) => {
    if (url.includes('follow=true')) send(response, streams[connections++] ?? END);
    else if (url.includes('/logs')) response.writeHead(200, { 'content-type': 'text/plain' }).end(log);
    else json(response, 200, { instance: records[Math.min(looks++, records.length - 1)] });
  });
}

function send(response: ServerResponse, stream: string): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(stream, () => (stream.endsWith(END) ? response.end() : response.destroy()));
}

describe('followed log', () => {
  test('a followed log continues after the last byte when the connection breaks', async () => {
    const streams = [event('one\ntw'), `:\n\n${event('one\n')}${event('two\nthree\n')}${END}`];
    await using service = await logService('one\ntwo\n', streams);
    const agent = await cli(['agent', 'logs', '-f', ID, '--address', service.address]);
    expect(agent).toEqual({ code: 0, out: 'one\ntwo\nthree\n', err: '' });
    await using jobs = await logService('', streams);
    const job = await cli(['job', 'logs', '-f', 'j', '--address', jobs.address]);
    expect(job).toEqual({ code: 0, out: 'one\ntwo\nthree\n', err: '' });
  });

  test('a followed log continues without repeated lines when only the last lines were requested', async () => {
    await using service = await logService('one\ntwo\n', [event('two\n'), `${event('one\ntwo\nthree\n')}${END}`]);
    const ran = await cli(['agent', 'logs', '-f', ID, '--tail', '1', '--address', service.address]);
    expect(ran).toEqual({ code: 0, out: 'two\nthree\n', err: '' });
  });

  test("a followed log counts the lines of each instance when the instances' lines arrive in another order", async () => {
    const [a, b] = ['[aaaaaaaa] ', '[bbbbbbbb] '];
    const now = `${b}1\n${b}2\n${a}1\n`;
    await using service = await logService(now, [event(`${a}1\n${b}1\n`), `${event(`${now}${a}2\n`)}${END}`]);
    const ran = await cli(['function', 'logs', '-f', 'sn:u', '--address', service.address]);
    expect(ran).toEqual({ code: 0, out: `${a}1\n${b}1\n${b}2\n${a}2\n`, err: '' });
  });

  test('a followed log warns when the log no longer has the lines that were printed', async () => {
    await using service = await logService('new\n', [event('old\n'), `${event('new\n')}${END}`]);
    const ran = await cli(['agent', 'logs', '-f', ID, '--address', service.address]);
    expect(ran).toMatchObject({ code: 0, out: 'old\nnew\n', err: expect.stringContaining('lines may be missing') });
  });

  test('a followed log continues with the next run when the agent restarts', async () => {
    const runs = [RECORD, { ...RECORD, status: 'RUNNING', restarts: 1 }, { ...RECORD, restarts: 1 }];
    await using service = await logService('', [`${event('one\n')}${END}`, `${event('two\n')}${END}`], runs);
    const ran = await cli(['agent', 'logs', '-f', ID, '--tail', '1', '--address', service.address]);
    expect(ran).toEqual({ code: 0, out: 'one\ntwo\n', err: `${ID} has started again\n` });
    expect(service.seen.filter(({ url }) => url.includes('follow=true')).map(({ url }) => url)).toEqual([
      `/api/agent/${ID}/logs?tail=1&follow=true`,
      `/api/agent/${ID}/logs?follow=true`,
    ]);
  });

  test("a followed log ends with the service's error when the service refuses the next connection", async () => {
    let connections = 0;
    await using service = await StubService.start((_, response) => {
      connections += 1;
      if (connections === 1) send(response, event('one\n'));
      else json(response, 401, { message: 'the token has expired' });
    });
    const ran = await cli(['job', 'logs', '-f', 'j', '--address', service.address]);
    expect(ran).toMatchObject({ code: 77, out: 'one\n', err: expect.stringContaining('the token has expired') });
  });
});
