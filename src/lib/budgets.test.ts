import { expect, test } from 'vitest';
import { TenantBudget } from './budgets.ts';

test('TenantBudget limits the total and each tenant, and released amounts are free again', () => {
  const budget = new TenantBudget(150, 100);
  budget.acquire('one', 100);
  expect([budget.fits('one', 1), budget.fits('other', 50), budget.fits('other', 51)]).toEqual([false, true, false]);
  expect(budget.fitsInTotal(50)).toBe(true);
  budget.release('one', 60);
  expect([budget.fits('one', 60), budget.fits('one', 61), budget.taken]).toEqual([true, false, 40]);
});

test('TenantBudget limits only the total when it has no limit per tenant', () => {
  const budget = new TenantBudget(100);
  budget.acquire('one', 60);
  expect([budget.fits('one', 40), budget.fits('one', 41)]).toEqual([true, false]);
});
