import { expect, test } from 'vitest';
import { createLogger, type LoggerOptions } from './logger.ts';

function capture(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  const logger = createLogger({ level: 'info', format: 'json', write: line => lines.push(line), ...options });
  return { logger, lines, entries: () => lines.map(line => JSON.parse(line) as Record<string, unknown>) };
}

const JWT = `eyJhbGciOiJIUzI1NiJ9.${'eyJzdWIiOiJ0In0'}.c2lnbmF0dXJl`;

test('a line is one JSON object with its level as a word, the time in RFC 3339 and its fields', () => {
  const { logger, entries } = capture();
  logger.info({ agents: 3 }, 'ready');
  const [entry] = entries();
  expect(entry).toMatchObject({ level: 'info', message: 'ready', agents: 3 });
  expect(entry?.time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
});

test('lines below the level are not written', () => {
  const { logger, lines } = capture({ level: 'warn' });
  logger.info({}, 'no');
  logger.warn({}, 'yes');
  expect(lines).toHaveLength(1);
});

test('a child logger puts its trace id on every line', () => {
  const { logger, entries } = capture();
  logger.child({ traceId: 't-1' }).warn({}, 'slow');
  expect(entries()[0]).toMatchObject({ traceId: 't-1', level: 'warn' });
});

test('an error is written with its stack and its cause', () => {
  const { logger, entries } = capture();
  logger.error({ err: new Error('outer', { cause: new Error('inner') }) }, 'failed');
  expect(JSON.stringify(entries()[0]?.err)).toMatch(/outer.*inner/);
});

test('secrets are hidden by the name of their field, at the top and below', () => {
  const { logger, lines } = capture();
  const secrets = { secret: 'hush', token: 'hush', authorization: 'hush', 'x-auth': 'hush', cookie: 'hush' };
  logger.info(secrets, 'one');
  logger.info({ headers: secrets }, 'b');
  logger.info({ request: { headers: secrets } }, 'c');
  expect(lines).toHaveLength(3);
  expect(lines.join()).not.toContain('hush');
});

test('a token is hidden in any text: messages, errors and URLs', () => {
  const { logger, lines } = capture();
  logger.info({ url: '/ws?token=abc&x=1', err: new Error(`bad ${JWT}`) }, `got ${JWT}`);
  expect(lines[0]).not.toContain('eyJ');
  expect(lines[0]).not.toContain('abc');
  expect(lines[0]).toContain('&x=1');
});

test('pretty lines have time, level, message and fields, and the stack below', () => {
  const { logger, lines } = capture({ format: 'pretty' });
  logger.error({ port: 80, path: '/a b', err: new Error('boom') }, 'failed');
  expect(lines[0]).toMatch(/^\d\d:\d\d:\d\d\.\d{3} ERROR failed port=80 path="\/a b"\n {4}Error: boom\n/);
  expect(lines[0]).not.toContain('\u001b');
});

test('pretty lines contain no control characters for a terminal', () => {
  const { logger, lines } = capture({ format: 'pretty' });
  const text = '\u001b]0;title\u0007\r\u009b2J\u007f';
  logger.error({ reason: text, path: `/a ${text}`, err: new Error(`boom ${text}\nmore`) }, `failed ${text}`);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the log must not contain these characters.
  expect(lines[0]).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f]/);
  expect(lines[0]).toContain('Error: boom \\u001b]0;title\\u0007\\u000d\\u009b2J\\u007f\n    more\n');
});

test('pretty lines have colours when requested', () => {
  const { logger, lines } = capture({ format: 'pretty', hasColours: true });
  logger.info({}, 'hello');
  expect(lines[0]).toContain('\u001b[32mINFO');
});
