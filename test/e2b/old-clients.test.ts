import { describeFlow } from './flow.ts';

describeFlow('the oldest supported Python SDK of E2B', { file: 'old.py', environment: 'python-old' });
describeFlow('the oldest supported JavaScript SDK of E2B', { file: 'node-old.mjs', environment: 'node-old' });
