import { describeFlow } from './flow.ts';

describeFlow('the JavaScript SDK of E2B', { file: 'node.mjs', environment: 'node' });
