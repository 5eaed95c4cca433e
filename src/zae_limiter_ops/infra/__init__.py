"""The CloudFormation stack: names, template, policies and function packages, without a call."""
