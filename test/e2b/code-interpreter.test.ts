import { describeFlow } from './flow.ts';

describeFlow('code interpreters of the E2B SDK', { file: 'code.py', environment: 'python' });
