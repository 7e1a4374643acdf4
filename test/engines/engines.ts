import { InstalledPackages } from '../parts/installed-packages.ts';

/** Releases of Bun and Deno in which the client for TypeScript must work. */
const RELEASES = {
  'node-bun': ['bun@1.4.5'],
  'node-deno': ['deno@2.9.6'],
} as const;

export const enginePackages = new InstalledPackages<keyof typeof RELEASES>('engines', RELEASES);
