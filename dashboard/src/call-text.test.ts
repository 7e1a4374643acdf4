import { describe, expect, test } from 'vitest';
import { CALL_LANGUAGES, type CallSource, callText, headersIn } from './call-text.ts';

const AGENT: CallSource = {
  origin: 'http://127.0.0.1:8888',
  path: '/api/agent/a1/invoke',
  target: { kind: 'agent', id: 'a1' },
  body: '{"say": "it\'s", "all": [true, null]}',
  headers: [],
  mode: 'answer',
  needsToken: true,
  tenant: null,
};
const FUNCTION: CallSource = {
  ...AGENT,
  path: '/serverless/v1/functions/sn%3Au/invocations',
  target: { kind: 'function', urn: 'sn:u', name: '0@svc@add', version: 'v1' },
};

describe('the text of a call', () => {
  test('curl sends the body as typed, and takes the token from the environment', () => {
    expect(callText('curl', AGENT)).toEqual({
      text: [
        "curl -sS 'http://127.0.0.1:8888/api/agent/a1/invoke' \\",
        '  -H "Authorization: Bearer $ROOKERY_TOKEN" \\',
        "  -H 'Content-Type: application/json' \\",
        `  --data-raw '{"say": "it'\\''s", "all": [true, null]}'`,
      ].join('\n'),
    });
  });

  test('Python gets the body as a literal of Python', () => {
    const body = '{"true": "null", "n": -1.5e3, "s": "\\/\\ud83d\\ude00\\n",\n "all": [true, false, null]}';
    expect(callText('Python', { ...AGENT, body, needsToken: false })).toEqual({
      text: [
        'from rookery import Rookery',
        '',
        'with Rookery("http://127.0.0.1:8888") as rookery:',
        '    agent = rookery.agents.get("a1")',
        '    print(agent.invoke({"true": "null", "n": -1.5e3, "s": "/😀\\n",\n "all": [True, False, None]}))',
        '',
      ].join('\n'),
    });
  });

  test('TypeScript names the version of the function, the tenant and the options of typed headers', () => {
    const headers = headersIn('X-Instance-Session: s1\nnothing\nX-Trace-Id: t1');
    expect(callText('TypeScript', { ...FUNCTION, body: '1', headers, mode: 'stream', tenant: 'acme' })).toEqual({
      text: [
        "import { Rookery } from '@rookery/client';",
        '',
        'const rookery = new Rookery({ url: "http://127.0.0.1:8888", token: process.env.ROOKERY_TOKEN, tenant: "acme" });',
        'const fn = await rookery.functions.get("0@svc@add", { version: "v1" });',
        'for await (const piece of fn.stream(1, { session: "s1", traceId: "t1" })) console.log(piece);',
        '',
      ].join('\n'),
    });
  });

  test('the command has the options of the mode and of typed headers', () => {
    const headers = headersIn('X-Invoke-Timeout-Ms: 500');
    expect(callText('CLI', { ...AGENT, body: '-1', headers })).toMatchObject({
      text: expect.stringMatching(/^rookery agent invoke a1 [\s\S]*--timeout '500ms' [\s\S]*--data '-1'$/),
    });
    expect(callText('CLI', { ...FUNCTION, mode: 'async' })).toMatchObject({
      text: expect.stringMatching(/^rookery function invoke 'sn:u' [\s\S]*--async --wait /),
    });
  });

  test.each(CALL_LANGUAGES)('a token in a typed header is no part of the text for %s', language => {
    const headers = headersIn('Authorization: Bearer secret\nX-Auth: secret\nCookie: iam_token=secret');
    const made = callText(language, { ...AGENT, headers });
    expect(made).toMatchObject({ text: expect.stringContaining('ROOKERY_TOKEN') });
    expect(JSON.stringify(made)).not.toContain('secret');
  });

  test.each([
    ['TypeScript', { body: '{' }, 'The body is not JSON. Only curl sends it as typed.'],
    ['CLI', { headers: headersIn('X-Mine: 1') }, 'CLI has no option for the header x-mine. Use curl.'],
    ['Python', { body: ' null' }, 'The Python client sends {} for None. Use curl.'],
    [
      'Python',
      { ...FUNCTION, mode: 'stream', headers: headersIn('X-Trace-Id: t') },
      'Python has no option for the header x-trace-id. Use curl.',
    ],
  ] as const)('%s says why it has no text for %j', (language, changed, problem) => {
    expect(callText(language, { ...AGENT, ...changed })).toEqual({ problem });
  });
});
