import { describeFlow } from './flow.ts';

describeFlow('the asynchronous Python client of E2B', { file: 'asynchronous.py', environment: 'python' });
