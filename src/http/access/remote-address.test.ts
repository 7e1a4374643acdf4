import { expect, test } from 'vitest';
import { addressGroup } from './remote-address.ts';

test.each([['127.0.0.1'], ['127.8.9.10'], ['::1'], ['::ffff:127.0.0.1'], [undefined]])(
  'addressGroup returns null for loopback and for a closed connection: %s',
  address => {
    expect(addressGroup(address)).toBeNull();
  },
);

test.each([
  ['192.0.2.7', '::ffff:192.0.2.7'],
  ['2001:db8:1:2::1', '2001:db8:1:2:ffff:0:0:9'],
  ['2001:db8::1', '2001:db8:0:0:5::'],
  ['fe80::1%eth0', 'fe80::2'],
])('addressGroup puts %s and %s into the same group', (one, other) => {
  expect(addressGroup(one)).not.toBeNull();
  expect(addressGroup(one)).toBe(addressGroup(other));
});

test.each([
  ['192.0.2.7', '192.0.2.8'],
  ['2001:db8:1:2::1', '2001:db8:1:3::1'],
  ['2001:db8::1', '2001:db8:0:1::1'],
])('addressGroup puts %s and %s into different groups', (one, other) => {
  expect(addressGroup(one)).not.toBe(addressGroup(other));
});
