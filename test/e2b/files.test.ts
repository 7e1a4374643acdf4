import { describeFlow } from './flow.ts';

describeFlow('files of the E2B SDK', { file: 'files.py', environment: 'python' });
