import { describe, expect, test } from 'vitest';
import { finishedCall } from '../../../test/history/finished-call.ts';
import { testFrontend } from '../../../test/http/frontend.ts';
import { unauthenticated } from '../../core/error.ts';
import type { FinishedCall } from '../../core/finished-call.ts';
import { CallReader } from '../../history/call-reader.ts';
import { toCallRow } from '../../history/call-rows.ts';
import { Redaction } from '../../history/redaction.ts';
import { SecretValues } from '../../history/secret-values.ts';
import type { Role, TokenVerifier } from '../../http/access/credentials.ts';
import { type Database, openDatabase } from '../../storage/database.ts';
import { insertCalls } from '../../storage/queries/calls.ts';

const FACTS = { secrets: new SecretValues([]), agentName: 'default/a' };
const ROWS = { nodeId: 'n', bodyBytes: 4096, redaction: new Redaction(['password']) };

/** Tokens of the form `<tenant>:<role>`. */
const tokens: TokenVerifier = {
  known: token => {
    const [tenant, role] = token.split('.');
    return { tenant: tenant as string, role: role as Role };
  },
  verify: async () => {
    throw unauthenticated('no');
  },
};

async function frontendWith(calls: readonly FinishedCall[]) {
  const database: Database = await openDatabase(':memory:');
  await database.transaction().execute(transaction =>
    insertCalls(
      transaction,
      calls.map(call => toCallRow(call, ROWS, FACTS)),
    ),
  );
  const frontend = testFrontend({ history: { calls: new CallReader(database), recordings: null }, auth: tokens });
  return {
    ask: (url: string, token = 'acme.developer') => frontend.send({ method: 'GET', url, headers: { 'x-auth': token } }),
    [Symbol.asyncDispose]: async () => {
      await frontend[Symbol.asyncDispose]();
      await database.destroy();
    },
  };
}

const failed = finishedCall({ tenant: 'acme', code: '4002', output: null, error: 'ValueError: about Ann' });
const ok = finishedCall({ tenant: 'acme', input: Buffer.from('{"about":"Ann","password":"x"}') });

describe('GET /api/calls', () => {
  test('returns pages of calls of the own tenant, newest first', async () => {
    await using bed = await frontendWith([failed, ok, finishedCall({ tenant: 'other' })]);
    const first = await bed.ask('/api/calls?limit=1');
    expect(first).toMatchObject({ status: 200, body: { code: 200, calls: [{ id: ok.id, error_code: null }] } });
    const cursor = String((first.body as { next_cursor: string }).next_cursor);
    const second = await bed.ask(`/api/calls?limit=1&cursor=${cursor}`);
    expect(second.body).toMatchObject({ calls: [{ id: failed.id, error_code: '4002' }], next_cursor: null });
  });

  test.each([
    ['outcome=error', [failed.id]],
    ['agent=agent-1&outcome=ok', [ok.id]],
    ['agent=agent-2', []],
    ['function=demo@hello', []],
    ['text=about%20ann', [failed.id]],
    [`trace_id=${ok.traceId}`, [ok.id]],
    ['after=1h', []],
    ['before=1970-01-02T00:00:00Z', [ok.id, failed.id]],
  ])('selects by %s', async (query, ids) => {
    await using bed = await frontendWith([failed, ok]);
    const { body } = await bed.ask(`/api/calls?${query}`);
    expect((body as { calls: { id: string }[] }).calls.map(({ id }) => id)).toEqual(ids);
  });

  test.each([
    ['outcome=bad', 'outcome must be one of ok, error, got "bad"'],
    ['function=x', 'function must be <service>@<name>, or the URN of a function, got "x"'],
    ['after=yesterday', 'after must be a moment (RFC 3339) or a duration like 10m, got "yesterday"'],
    ['cursor=x', 'cursor must be the next_cursor of a page before, got "x"'],
    [`text=${'a'.repeat(257)}`, `text must be at most 256 characters, got "${'a'.repeat(32)}…"`],
    ['follow=x', 'follow must be now, or the next_cursor of an answer before, got "x"'],
    ['limit=1001', 'limit must be an integer from 1 to 1000, got "1001"'],
  ])('refuses %s', async (query, problem) => {
    await using bed = await frontendWith([]);
    expect(await bed.ask(`/api/calls?${query}`)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`invalid query: ${problem}`) },
    });
  });

  test('follows the records of the own tenant from a cursor', async () => {
    await using bed = await frontendWith([failed, finishedCall({ tenant: 'other' }), ok]);
    expect((await bed.ask('/api/calls?follow=now')).body).toMatchObject({ calls: [], next_cursor: '2' });
    const first = await bed.ask('/api/calls?follow=0&limit=1');
    expect(first.body).toMatchObject({ calls: [{ id: failed.id }], next_cursor: '1' });
    expect((await bed.ask('/api/calls?follow=1')).body).toMatchObject({ calls: [{ id: ok.id }], next_cursor: '2' });
    expect((await bed.ask('/api/calls?follow=2')).body).toMatchObject({ calls: [], next_cursor: '2' });
    expect(await bed.ask(`/api/calls?follow=2&cursor=1.${ok.id}`)).toMatchObject({
      ...{ status: 400, body: { message: expect.stringContaining('follow and cursor exclude each other') } },
    });
    expect((await bed.ask('/api/calls?follow=0', 'acme.viewer')).text).not.toContain('Ann');
  });

  test('shows the names and times of spans to viewers, and their attributes and errors to others', async () => {
    const span = { name: 'fetch', startMicros: 1500, micros: 250, attributes: { about: 'Ann' }, error: 'of Ann' };
    const traced = finishedCall({ tenant: 'acme', spans: Buffer.from(JSON.stringify({ spans: [span], dropped: 2 })) });
    await using bed = await frontendWith([traced]);
    const facts = { name: 'fetch', parent: null, start_ms: 1.5, duration_ms: 0.25, outcome: 'error' };
    const spansFor = async (token: string) => {
      const { body } = await bed.ask(`/api/calls/${traced.id}`, token);
      return (body as { call: { spans: unknown; dropped_spans: unknown } }).call;
    };
    expect(await spansFor('acme.viewer')).toMatchObject({ spans: [facts], dropped_spans: 2 });
    expect(JSON.stringify(await spansFor('acme.viewer'))).not.toContain('Ann');
    expect(await spansFor('acme.developer')).toMatchObject({
      spans: [{ ...facts, attributes: { about: 'Ann' }, error: 'of Ann' }],
    });
  });

  test('shows facts to viewers, and neither texts nor a search in them', async () => {
    await using bed = await frontendWith([failed, ok]);
    for (const url of ['/api/calls', `/api/calls/${ok.id}`, `/api/calls/${failed.id}`]) {
      const { status, text } = await bed.ask(url, 'acme.viewer');
      expect(status).toBe(200);
      expect(text).toContain('duration_ms');
      expect(text).not.toContain('Ann');
    }
    expect((await bed.ask('/api/calls?text=Ann', 'acme.viewer')).status).toBe(403);
  });
});

describe('GET /api/calls/{id}', () => {
  test('returns the redacted input and the output', async () => {
    await using bed = await frontendWith([ok, failed]);
    expect((await bed.ask(`/api/calls/${ok.id}`, 'acme.user')).body).toMatchObject({
      call: { id: ok.id, input: '{"about":"Ann","password":"[redacted]"}', output: '"hello"', is_input_cut: false },
    });
    expect((await bed.ask(`/api/calls/${failed.id}`)).body).toMatchObject({
      call: { output: null, error: 'ValueError: about Ann' },
    });
  });

  test.each(['other.developer', 'other.viewer'])('answers 404 to %s about a call of another tenant', async token => {
    await using bed = await frontendWith([ok]);
    expect(await bed.ask(`/api/calls/${ok.id}`, token)).toMatchObject({
      status: 404,
      body: { code: 404, message: `call not found: ${ok.id}` },
    });
    expect((await bed.ask('/api/calls', token)).body).toMatchObject({ calls: [] });
  });
});

describe('the call that made a call', () => {
  const outer = finishedCall({ tenant: 'acme', id: 'abcdef01-2345-4678-9abc-def012345678' });
  const span = outer.id.replaceAll('-', '').slice(0, 16);
  const inner = finishedCall({ tenant: 'acme', traceparent: `00-${'a'.repeat(32)}-${span}-01` });
  const foreign = finishedCall({ tenant: 'acme', traceparent: `00-${'a'.repeat(32)}-${'4'.repeat(16)}-01` });

  test('is in lists and details, and selects the calls that it made', async () => {
    await using bed = await frontendWith([outer, inner, foreign]);
    const parents = new Map([
      [outer.id, null],
      [inner.id, outer.id],
      [foreign.id, null],
    ]);
    const { calls } = (await bed.ask('/api/calls')).body as { calls: { id: string; parent_id: string | null }[] };
    expect(new Map(calls.map(call => [call.id, call.parent_id]))).toEqual(parents);
    for (const [id, parent] of parents) {
      expect((await bed.ask(`/api/calls/${id}`)).body).toMatchObject({ call: { parent_id: parent } });
    }
    const made = (await bed.ask(`/api/calls?parent=${outer.id}`)).body;
    expect((made as { calls: { id: string }[] }).calls.map(({ id }) => id)).toEqual([inner.id]);
    expect((await bed.ask('/api/calls?parent=abc')).body).toMatchObject({
      message: expect.stringContaining('invalid query: parent must be the id of a call, got "abc"'),
    });
  });

  test('is never one of another tenant', async () => {
    const other = finishedCall({ tenant: 'other', traceparent: inner.traceparent });
    await using bed = await frontendWith([outer, other]);
    expect((await bed.ask(`/api/calls/${other.id}`, 'other.developer')).body).toMatchObject({
      call: { parent_id: null },
    });
    expect((await bed.ask(`/api/calls?parent=${outer.id}`)).body).toMatchObject({ calls: [] });
  });
});
