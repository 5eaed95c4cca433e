"""The CloudFormation stack as data: names, template, policies and function packages."""
