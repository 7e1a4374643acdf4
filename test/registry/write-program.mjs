// The thread that writes, from its sources: a thread does not take tsx over from the process that starts it.
import { register } from 'tsx/esm/api';

register();
await import('../../src/write-program.ts');
