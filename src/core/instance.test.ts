import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatPort, parsePorts } from './instance.ts';

const FIELD = 'runtime_spec.rootfs.ports';

test.each([
  ['tcp:8080', { protocol: 'tcp', port: 8080 }],
  ['udp:53', { protocol: 'udp', port: 53 }],
  ['8080', { protocol: 'tcp', port: 8080 }],
  ['1', { protocol: 'tcp', port: 1 }],
  ['65535', { protocol: 'tcp', port: 65_535 }],
])('the text %s is a port', (item, port) => {
  expect(parsePorts([item], FIELD)).toEqual([port]);
});

test.each([
  '',
  '0',
  '65536',
  '99999',
  '-1',
  '+80',
  '080',
  '8080 ',
  '80.5',
  'tcp:',
  ':80',
  'sctp:80',
  'TCP:80',
  '80:8080',
])('the text "%s" is not a port', item => {
  expect(() => parsePorts(['22', item], FIELD)).toThrow(
    `invalid request body: ${FIELD}[1] must be [tcp:|udp:]<port> with a port from 1 to 65535, got "${item}"`,
  );
});

test('a port number may be listed once in each protocol', () => {
  expect(parsePorts(['tcp:53', 'udp:53'], FIELD)).toHaveLength(2);
  expect(() => parsePorts(['8080', 'udp:1', 'tcp:8080'], FIELD)).toThrow(
    `invalid request body: ${FIELD}[2] repeats tcp:8080`,
  );
});

test('a formatted port is parsed to the same port', () => {
  const port = fc.record({
    protocol: fc.constantFrom('tcp' as const, 'udp' as const),
    port: fc.integer({ min: 1, max: 65_535 }),
  });
  fc.assert(
    fc.property(port, one => {
      expect(parsePorts([formatPort(one)], FIELD)).toEqual([one]);
    }),
  );
});
