import { expect, test } from 'vitest';
import { failedPrecondition, notFound, type ServiceError, unavailable } from '../core/error.ts';
import type { Log } from '../lib/log.ts';
import { createAccessLog } from './access-log.ts';

/** Returns the level of the line for a request that was answered with `status`. */
function levelOf(status: number, failure: ServiceError | string): string | undefined {
  const levels: string[] = [];
  const level = (name: string) => () => void levels.push(name);
  const log = { info: level('info'), warn: level('warn'), error: level('error') } as unknown as Log;
  const route = { url: '(sandbox)', access: 'public' } as const;
  const request = { raw: { url: '/x' }, method: 'GET', route, traceId: 't', tenant: 'default', failure };
  createAccessLog({ entry: 'frontend', log, slowMs: 1000 })(request, status, 1);
  return levels[0];
}

test('logs a 502 for a missing sandbox or port as a mistake of the client', () => {
  expect(levelOf(502, notFound('sandbox not found'))).toBe('info');
  expect(levelOf(502, failedPrecondition('port is not open'))).toBe('info');
});

test('logs other answers from 500 on as errors of the service', () => {
  expect(levelOf(502, unavailable('connection lost'))).toBe('error');
  expect(levelOf(502, 'connection lost')).toBe('error');
  expect(levelOf(500, notFound('x'))).toBe('error');
});
