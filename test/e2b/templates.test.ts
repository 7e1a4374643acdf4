import { describeFlow } from './flow.ts';

describeFlow('templates of the Python SDK', { file: 'templates.py', environment: 'python' });
describeFlow('templates of the JavaScript SDK', { file: 'templates.mjs', environment: 'node' });
