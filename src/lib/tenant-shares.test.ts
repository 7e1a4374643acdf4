import { expect, test } from 'vitest';
import { TenantShares } from './byte-budgets.ts';

test('TenantShares limits each tenant to its own share, and returned bytes are free again', () => {
  const shares = new TenantShares(100);
  const [one, other] = [shares.of('one'), shares.of('other')];
  one.take(60);
  expect(one.fits(40)).toBe(true);
  expect(one.fits(41)).toBe(false);
  expect(other.fits(100)).toBe(true);
  one.give(60);
  expect(one.fits(100)).toBe(true);
});

test('TenantShares counts all instances of one tenant against one share', () => {
  const shares = new TenantShares(100);
  shares.of('one').take(70);
  expect(shares.of('one').fits(31)).toBe(false);
  expect(shares.size).toBe(1);
});

test('TenantShares drops a tenant only when every holder has released and all bytes are returned', () => {
  const shares = new TenantShares(100);
  const [first, second] = [shares.of('one'), shares.of('one')];
  first.take(50);
  first.release();
  second.release();
  expect(shares.of('one').fits(51)).toBe(false);
  shares.of('one').release();
  first.give(50);
  expect(shares.size).toBe(1);
  second.release();
  expect(shares.size).toBe(0);
});
