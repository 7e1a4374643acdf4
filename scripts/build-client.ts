/** Compiles the TypeScript client. `npm pack` in clients/typescript runs this script first. */
import { bin, run } from './command.ts';

const { code } = await run(bin('tsc'), ['-p', 'clients/typescript']);
process.exitCode = code;
