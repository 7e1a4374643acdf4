// Runs the writer thread from its TypeScript sources. A thread does not inherit tsx from the process.
import { register } from 'tsx/esm/api';

register();
await import('../../src/server/write-program.ts');
