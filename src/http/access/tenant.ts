import type { IncomingHttpHeaders } from 'node:http';
import { invalidRequest, permissionDenied } from '../../core/error.ts';
import { DEFAULT_TENANT, isTenant, TENANT_RULE } from '../../core/tenant.ts';

/**
 * Returns the tenant of a request: the token's, else the header `tenantId` or `X-Tenant-Id`, else `default`.
 * Fails with `invalid_request` for a malformed name or two different headers. Fails with `permission_denied`
 * if the header differs from the token's tenant.
 */
export function tenantOf(headers: IncomingHttpHeaders, ofToken: string | undefined): string {
  const named = headerOf(headers, 'tenantid') ?? headerOf(headers, 'x-tenant-id');
  if (named === undefined) return ofToken ?? DEFAULT_TENANT;
  if (!isTenant(named)) {
    throw invalidRequest(`invalid tenant "${named}": expected ${TENANT_RULE}`);
  }
  const other = headerOf(headers, 'x-tenant-id');
  if (other !== undefined && other !== named) {
    throw invalidRequest(`the headers tenantId ("${named}") and X-Tenant-Id ("${other}") differ`);
  }
  if (ofToken !== undefined && named !== ofToken) {
    throw permissionDenied(`the token is of another tenant than "${named}"`);
  }
  return named;
}

function headerOf(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
