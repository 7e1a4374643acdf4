import { describeFlow } from './flow.ts';

describeFlow('commands and terminals of the E2B SDK', { file: 'commands.py', environment: 'python' });
